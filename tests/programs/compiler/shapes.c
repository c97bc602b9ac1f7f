/* Functions that must compile, link, and become the same code each time: none is run. */

/* A function that is always inlined, and stays one for other files. */
__attribute__((always_inline)) double gathered(long count, const int *places, const double *values) {
    double sum = 0;
    for (long i = 0; i < count; i++) sum += values[places[i]];
    return sum;
}

double gathered_twice(long count, const int *places, const double *values) { return gathered(count, places, values) + gathered(count / 2, places, values); }

/* Its body becomes a function that is always inlined. */
double parallel(long count, const int *places, const double *values) {
    double sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (long i = 0; i < count; i++) sum += values[places[i]];
    return sum;
}
