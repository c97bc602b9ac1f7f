// LINPACK: a dense system of linear equations by LU decomposition with partial pivoting, in blocks (xDM's Table V).
//
// usage: linpack MIB      (MIB: the matrix)
// Output: whether the residual passes as LINPACK's does, and a digest of the solution and the pivots, the same on every run.
#include "common.h"
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

// Columns of a panel, and columns that are updated at a time: a panel's rows of so many fit a cache.
constexpr size_t PANEL = 64, TILE = 512;
// The residual by the norms, the size and the precision, at most.
constexpr double PASSES = 16;

struct Matrix {
    size_t side;
    std::vector<double> numbers;

    double *row(size_t at) { return &numbers[at * side]; }
};

// Between -1/2 and 1/2; made again for the residual, since the decomposition takes the matrix's place.
static double number(size_t row, size_t column, size_t side) { return static_cast<double>(scattered(row * side + column + 1) >> 11) * 0x1p-53 - 0.5; }

// Columns `from` to `to` are decomposed from row `from` on; rows are exchanged as a whole.
static void panel(Matrix &matrix, std::vector<size_t> &pivots, size_t from, size_t to) {
    for (size_t column = from; column < to; column++) {
        size_t pivot = column;
        for (size_t row = column + 1; row < matrix.side; row++)
            if (std::fabs(matrix.row(row)[column]) > std::fabs(matrix.row(pivot)[column])) pivot = row;
        pivots[column] = pivot;
        if (pivot != column) std::swap_ranges(matrix.row(column), matrix.row(column) + matrix.side, matrix.row(pivot));
        const double *top = matrix.row(column);
        for (size_t row = column + 1; row < matrix.side; row++) {
            double *own = matrix.row(row);
            const double factor = own[column] /= top[column];
            for (size_t at = column + 1; at < to; at++) own[at] -= factor * top[at];
        }
    }
}

// What is right of a panel: its own rows first, then those below them, some columns at a time.
static void update(Matrix &matrix, size_t from, size_t to) {
    for (size_t left = to; left < matrix.side; left += TILE) {
        const size_t right = std::min(left + TILE, matrix.side);
        for (size_t row = from + 1; row < matrix.side; row++) {
            double *own = matrix.row(row);
            for (size_t step = from; step < std::min(row, to); step++) {
                const double factor = own[step], *top = matrix.row(step);
                for (size_t at = left; at < right; at++) own[at] -= factor * top[at];
            }
        }
    }
}

static void solve(Matrix &matrix, const std::vector<size_t> &pivots, std::vector<double> &x) {
    for (size_t at = 0; at < matrix.side; at++) std::swap(x[at], x[pivots[at]]);
    for (size_t row = 0; row < matrix.side; row++)
        for (size_t at = 0; at < row; at++) x[row] -= matrix.row(row)[at] * x[at];
    for (size_t row = matrix.side; row-- > 0;) {
        for (size_t at = row + 1; at < matrix.side; at++) x[row] -= matrix.row(row)[at] * x[at];
        x[row] /= matrix.row(row)[row];
    }
}

static double largest(const std::vector<double> &of) {
    double most = 0;
    for (double value : of) most = std::max(most, std::fabs(value));
    return most;
}

int main(int argc, char **argv) {
    const uint64_t bytes = argc == 2 ? strtoull(argv[1], nullptr, 10) << 20 : 0;
    if (!bytes) return fprintf(stderr, "usage: linpack MIB\n"), 2;
    const size_t side = static_cast<size_t>(std::sqrt(static_cast<double>(bytes) / sizeof(double)));
    Matrix matrix{side, std::vector<double>(side * side)};
    std::vector<double> right(side), x, residual(side);
    double norm = 0;
    for (size_t row = 0; row < side; row++) {
        double sum = 0;
        for (size_t column = 0; column < side; column++) {
            const double value = matrix.row(row)[column] = number(row, column, side);
            right[row] += value, sum += std::fabs(value);
        }
        norm = std::max(norm, sum);
    }
    x = right;
    std::vector<size_t> pivots(side);
    {
        Timed timed;
        for (size_t from = 0; from < side; from += PANEL) {
            const size_t to = std::min(from + PANEL, side);
            panel(matrix, pivots, from, to);
            update(matrix, from, to);
        }
        solve(matrix, pivots, x);
    }
    for (size_t row = 0; row < side; row++) {
        residual[row] = -right[row];
        for (size_t column = 0; column < side; column++) residual[row] += number(row, column, side) * x[column];
    }
    const double scaled = largest(residual) / (norm * largest(x) * static_cast<double>(side) * DBL_EPSILON);
    uint64_t digest = side;
    for (size_t at = 0; at < side; at++) {
        uint64_t bits;
        memcpy(&bits, &x[at], sizeof bits);
        digest = scattered(digest ^ scattered(bits) ^ pivots[at]);
    }
    const bool passed = scaled < PASSES;
    printf("residual %s, digest %016llx\n", passed ? "passed" : "FAILED", (unsigned long long)digest);
    return !passed;
}
