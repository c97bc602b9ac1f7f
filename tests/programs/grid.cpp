// Objects behind new, in a template that the compiler puts into its caller: what a profile has to name.
#include <cstdio>
#include <memory>
#include <vector>

namespace shapes {
template <typename T> struct Grid {
    std::vector<T> cells;
    explicit Grid(size_t size) : cells(size, T(1)) {}
    __attribute__((noinline)) T gather(size_t steps) const {
        size_t at = 1;
        T sum = 0;
        for (size_t i = 0; i < steps; i++) {
            at = at * 6364136223846793005ul + 1442695040888963407ul;
            sum += cells[(at >> 20) % cells.size()];
        }
        return sum;
    }
};
}  // namespace shapes

__attribute__((noinline)) std::unique_ptr<shapes::Grid<double>> make_grid(size_t size) {
    return std::make_unique<shapes::Grid<double>>(size);
}

int main() {
    auto grid = make_grid(size_t(5) << 20);
    std::printf("%.0f\n", grid->gather(40000));
}
