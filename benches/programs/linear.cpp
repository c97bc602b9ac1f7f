// The C++ programs of 3PO's Table 2, with Eigen.
//
// usage: linear dot_prod|mvmul|matmul|sparse_mul MIB, or linear matmul_p MIB THREADS      (MIB: all vectors and matrices together)
//        linear dot_prod|mvmul|matmul|matmul_p MIB THREADS half|random      with so many random numbers that LZ4 makes a half of all, or only those
//
//   dot_prod     the dot product of two vectors
//   mvmul        a square matrix by a vector
//   matmul       two square matrices
//   matmul_p     the same; each of THREADS threads has as many rows of the product (OpenMP, static)
//   sparse_mul   two sparse square matrices, of which 90 % are zeroes
//
// All numbers are small integers, so sums are exact in whatever order they are made; random ones are between 0 and 1. Output: a sum or two of the result.
#include "common.h"
#include <Eigen/Dense>
#include <Eigen/SparseCore>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Sparse = Eigen::SparseMatrix<double, Eigen::RowMajor>;

// Of 512 numbers, a page.
static unsigned random_of_page;

static double number() {
    static unsigned count;
    return count++ % 512 < random_of_page ? static_cast<double>(next() >> 11) * 0x1p-53 : static_cast<double>(next() % 16) - 8;
}

static Eigen::Index side(size_t bytes, double bytes_of_each) {
    return static_cast<Eigen::Index>(std::sqrt(static_cast<double>(bytes) / bytes_of_each));
}

static Matrix matrix(Eigen::Index rows) { return Matrix::NullaryExpr(rows, rows, [] { return number(); }); }

static Eigen::VectorXd vector(Eigen::Index length) { return Eigen::VectorXd::NullaryExpr(length, [] { return number(); }); }

static void dot_prod(size_t bytes) {
    const auto length = static_cast<Eigen::Index>(bytes / (2 * sizeof(double)));
    const Eigen::VectorXd left = vector(length), right = vector(length);
    Timed timed;
    printf("%.0f\n", left.dot(right));
}

static void mvmul(size_t bytes) {
    const Eigen::Index rows = side(bytes, sizeof(double));
    const Matrix left = matrix(rows);
    const Eigen::VectorXd right = vector(rows);
    Timed timed;
    const Eigen::VectorXd product = left * right;
    printf("%.0f %.0f\n", product.sum(), product.maxCoeff());
}

static void matmul(size_t bytes) {
    const Eigen::Index rows = side(bytes, 3 * sizeof(double));
    const Matrix left = matrix(rows), right = matrix(rows);
    Matrix product(rows, rows);
    Timed timed;
    product.noalias() = left * right;
    printf("%.0f %.0f\n", product.sum(), product.maxCoeff());
}

static void matmul_p(size_t bytes, int threads) {
    const Eigen::Index rows = side(bytes, 3 * sizeof(double));
    const Matrix left = matrix(rows), right = matrix(rows);
    Matrix product(rows, rows);
    Timed timed;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int part = 0; part < threads; part++) {
        const Eigen::Index begin = rows * part / threads, count = rows * (part + 1) / threads - begin;
        product.middleRows(begin, count).noalias() = left.middleRows(begin, count) * right;
    }
    printf("%.0f %.0f\n", product.sum(), product.maxCoeff());
}

static Sparse sparse(Eigen::Index rows) {
    Sparse made(rows, rows);
    made.reserve(Eigen::VectorXi::Constant(rows, static_cast<int>(rows / 8 + 64)));
    for (Eigen::Index row = 0; row < rows; row++)
        for (Eigen::Index column = 0; column < rows; column++)
            if (next() % 10 == 0) made.insert(row, column) = static_cast<double>(1 + next() % 8);
    made.makeCompressed();
    return made;
}

static void sparse_mul(size_t bytes) {
    // A number and its column take 12 bytes: a tenth of two matrices, and nearly all of the product, which is made twice over.
    const Eigen::Index rows = side(bytes, 12 * (2 * 0.1 + 2));
    const Sparse left = sparse(rows), right = sparse(rows);
    Timed timed;
    const Sparse product = left * right;
    printf("%.0f %lld\n", product.sum(), static_cast<long long>(product.nonZeros()));
}

int main(int argc, char **argv) {
    const char *name = argc > 2 ? argv[1] : "";
    const size_t bytes = argc > 2 ? strtoull(argv[2], nullptr, 10) << 20 : 0;
    const int threads = argc > 3 ? atoi(argv[3]) : 1;
    const char *data = argc > 4 ? argv[4] : "";
    // LZ4 makes 36 % of small integers.
    random_of_page = !strcmp(data, "random") ? 512 : !strcmp(data, "half") ? 112 : 0;
    if (bytes == 0 || threads < 1) name = "";
    if (!strcmp(name, "dot_prod")) dot_prod(bytes);
    else if (!strcmp(name, "mvmul")) mvmul(bytes);
    else if (!strcmp(name, "matmul")) matmul(bytes);
    else if (!strcmp(name, "matmul_p")) matmul_p(bytes, threads);
    else if (!strcmp(name, "sparse_mul")) sparse_mul(bytes);
    else {
        fprintf(stderr, "usage: linear dot_prod|mvmul|matmul|sparse_mul MIB, or linear matmul_p MIB THREADS [half|random]\n");
        return 2;
    }
    return 0;
}
