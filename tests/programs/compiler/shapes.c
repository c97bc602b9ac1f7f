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

/* A pointer that is the smaller of two. */
long clamped(long count, const long *values, const long *last, const int *places, const long *others) {
    long sum = 0;
    for (long i = 0; i < count; i++) {
        const long *value = values + i * 3;
        if (value > last) value = last;
        sum += *value;
        sum += others[places[i]];
    }
    return sum;
}

#define ROUND { unsigned long one = key + 13, other = key * 5 + 1; key = one * other; }
#define ROUNDS ROUND ROUND ROUND ROUND ROUND ROUND ROUND ROUND

/* An index whose computation doubles with each round. */
double shared(long count, const unsigned long *keys, const double *values) {
    double sum = 0;
    for (long i = 0; i < count; i++) {
        unsigned long key = keys[i];
        ROUNDS ROUNDS ROUNDS ROUNDS
        sum += values[key & 4095];
    }
    return sum;
}

/* Gathers of the loop and of two inside it, which are hinted in one order. */
double both(long count, long width, const long *restrict lengths, const int *restrict columns, const int *restrict places, const double *restrict values,
            const double *restrict weights, const int *restrict others) {
    double sum = 0;
    for (long i = 0; i < count; i++) {
        sum += values[places[i]];
        long j = 0;
        do sum += weights[columns[i * width + j]];
        while (++j < lengths[i]);
        j = 0;
        do sum *= weights[others[i * width + j]];
        while (++j < lengths[i]);
    }
    return sum;
}
