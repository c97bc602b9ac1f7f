// Templates of the standard library and of a program, for the compiler's plugin: what it must leave as it is.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>
#if __has_include(<eigen3/Eigen/Dense>)
#include <eigen3/Eigen/Dense>
#include <eigen3/Eigen/Sparse>
#define HAS_EIGEN 1
#endif

template <class T> struct Matrix {
    size_t order;
    std::vector<T> values;
    explicit Matrix(size_t order) : order(order), values(order * order) {
        for (size_t i = 0; i < values.size(); i++) values[i] = T(i % 17);
    }
    T &operator()(size_t row, size_t column) { return values[row * order + column]; }
    T sum() const { return std::accumulate(values.begin(), values.end(), T()); }
};

template <class T> Matrix<T> operator*(Matrix<T> &left, Matrix<T> &right) {
    Matrix<T> product(left.order);
    std::fill(product.values.begin(), product.values.end(), T());
    for (size_t i = 0; i < left.order; i++)
        for (size_t k = 0; k < left.order; k++)
            for (size_t j = 0; j < left.order; j++) product(i, j) += left(i, k) * right(k, j);
    return product;
}

template <class Map> static size_t counted(const std::vector<unsigned> &keys) {
    Map map;
    for (unsigned key : keys) map[key]++;
    size_t sum = 0;
    for (auto &[key, count] : map) sum += key * count;
    return sum;
}

// Checks that throw, out of a loop and to a place within the function.
__attribute__((noinline)) static double checked(const std::vector<unsigned> &keys, const std::vector<double> &values, size_t count) {
    double sum = 0;
    try {
        for (size_t i = 0; i < count; i++) sum += values.at(keys.at(i));
    } catch (const std::out_of_range &) {
        sum = -sum;
    }
    return sum;
}

int main() {
    std::mt19937_64 random(1);
    std::vector<unsigned> keys(100000);
    for (auto &key : keys) key = random() % 50000;
    std::vector<double> values(50000);
    std::iota(values.begin(), values.end(), 1.0);
    double sum = 0;
    for (unsigned key : keys) sum += values[key];
    printf("%.0f %.0f\n", sum, std::accumulate(values.begin(), values.end(), 0.0));
    printf("%zu %zu\n", counted<std::map<unsigned, unsigned>>(keys), counted<std::unordered_map<unsigned, unsigned>>(keys));
    std::sort(keys.begin(), keys.end());
    std::deque<unsigned> queue(keys.begin(), keys.end());
    printf("%u %u\n", keys[5000], std::accumulate(queue.begin(), queue.end(), 0u));

    Matrix<double> a(200), b(200);
    Matrix<float> c(96), d(96);
    Matrix<long> e(96), f(96);
    printf("%.0f %.0f %ld\n", (a * b).sum(), (c * d).sum(), (e * f).sum());

    std::vector<std::vector<int>> rows(1000);
    for (int i = 0; i < 1000; i++) rows[i].assign(100 + i, i);
    long total = 0;
    for (auto &row : rows)
        for (int value : row) total += value;
    std::vector<std::string> words(1000);
    for (size_t i = 0; i < words.size(); i++) words[i] = std::to_string(i * 7919 % 1000);
    for (auto &word : words) total += long(word.size()) * std::stol(word);
    printf("%ld\n", total);

    // Several threads run one loop.
    std::vector<double> parts(4);
    std::vector<std::thread> threads;
    for (size_t part = 0; part < parts.size(); part++)
        threads.emplace_back([&, part] {
            for (int round = 0; round < 20; round++)
                for (unsigned key : keys) parts[part] += values[key] * double(part + 1);
        });
    for (auto &thread : threads) thread.join();
    printf("%.0f\n", parts[0] + parts[1] + parts[2] + parts[3]);

    // A loop that is left by an exception.
    double before = 0;
    try {
        for (size_t i = 0;; i++) before += values.at(i);
    } catch (const std::out_of_range &) {
        printf("%.0f\n", before);
    }
    printf("%.0f %.0f\n", checked(keys, values, keys.size()), checked(keys, values, keys.size() + 1));
    keys[77777] = 50000;
    printf("%.0f\n", checked(keys, values, keys.size()));
#ifdef HAS_EIGEN
    Eigen::MatrixXd dense = Eigen::MatrixXd::Constant(120, 120, 0.5);
    Eigen::SparseMatrix<double> sparse(1000, 1000);
    for (int i = 0; i < 1000; i++) sparse.insert(i, i * 7 % 1000) = i;
    Eigen::VectorXd ones = Eigen::VectorXd::Ones(1000);
    printf("%.0f %.0f\n", (dense * dense).sum(), (sparse * ones).sum());
#endif
}
