// Functions and an allocation whose names a plan has in all the ways in which profiles and people write them.
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace shapes {

namespace {

__attribute__((noinline)) long hidden(const long *to, const long *index, unsigned long count) {
  long sum = 0;
  for (unsigned long i = 0; i < count; i++) sum += to[index[i]];
  return sum;
}

} // namespace

inline long *make(unsigned long count) {
  long *words = static_cast<long *>(malloc(count * sizeof(long)));
  for (unsigned long i = 0; i < count; i++) words[i] = i;
  return words;
}

template <class T> struct Grid {
  const T *values;
  const long *index;
  __attribute__((noinline)) T gather(unsigned long count) const {
    T sum = 0;
    for (unsigned long i = 0; i < count; i++) sum += values[index[i]];
    return sum;
  }
  T operator()(unsigned long count) const {
    T sum = 0;
    for (unsigned long i = 0; i < count; i++) sum += values[index[i] / 2];
    return sum;
  }
};

template <class T> __attribute__((noinline)) T nested(const std::vector<std::vector<T>> &rows, const long *index) {
  T sum = 0;
  for (unsigned long i = 0; i < rows[0].size(); i++) sum += rows[0][index[i]];
  return sum;
}

__attribute__((noinline)) double over(const double *values, const long *index, unsigned long count) {
  double sum = 0;
  for (unsigned long i = 0; i < count; i++) sum += values[index[i]];
  return sum;
}

__attribute__((noinline)) double over(const float *values, const long *index, unsigned long count) {
  double sum = 0;
  for (unsigned long i = 0; i < count; i++) sum += values[index[i]];
  return sum;
}

__attribute__((noinline)) void zero(long *words, unsigned long count) {
  for (unsigned long i = 0; i < count; i++) words[i] = 0;
}

} // namespace shapes

int main(int count, char **) {
  unsigned long words = 100000ul * count;
  long *index = shapes::make(words);
  const shapes::Grid<long> grid{index, index};
  std::vector<std::vector<long>> rows(1, std::vector<long>(words, 1));
  long sum = grid.gather(words) + grid(words) + shapes::hidden(index, index, words) + shapes::nested(rows, index);
  std::vector<double> doubles(words, 1);
  std::vector<float> floats(words, 1);
  sum += shapes::over(doubles.data(), index, words) + shapes::over(floats.data(), index, words);
  for (unsigned long i = 0; i < words; i++) sum += index[i];
  printf("%ld\n", sum);
  shapes::zero(index, words);
  free(index);
  return 0;
}
