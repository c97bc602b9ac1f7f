// A column store over taxi rides, of which more columns are in memory than are local.
//
// usage: columns filter|group|summary|all MIB      (about so much memory)
// Output: the results, the same on every run and build; on standard error the seconds of the queries without what fills the columns.
//
//   filter   rides that fit a condition on two columns, then the mean of a third one over them
//   group    rides and fares by zone, over the rides that a condition selects
//   summary  least, mean and greatest of each column
//   all      these in turn
#include "common.h"
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

template <class T> using Column = std::vector<T>;

constexpr unsigned zones = 263;

// Times in seconds, lengths in metres, money in cents.
struct Rides {
    Column<uint32_t> begin, end;
    Column<uint16_t> from, to;
    Column<uint8_t> passengers;
    Column<int32_t> metres, fare, tip;
};

constexpr uint64_t row_bytes = 4 + 4 + 2 + 2 + 1 + 4 + 4 + 4;
// Rows that a condition selects.
using Selection = std::vector<uint32_t>;

static Rides fill(uint64_t rows) {
    Rides rides;
    rides.begin.resize(rows), rides.end.resize(rows), rides.from.resize(rows), rides.to.resize(rows);
    rides.passengers.resize(rows), rides.metres.resize(rows), rides.fare.resize(rows), rides.tip.resize(rows);
    uint32_t now = 0;
    for (uint64_t row = 0; row < rows; row++) {
        uint64_t bits = next();
        now += bits % 3;
        int32_t metres = 300 + int32_t((bits >> 8) % 4000 * ((bits >> 20) % 8 + 1)), seconds = metres / 6 + int32_t((bits >> 24) % 600);
        rides.begin[row] = now, rides.end[row] = now + uint32_t(seconds);
        // Most rides begin in few zones.
        rides.from[row] = uint16_t((bits >> 32) % 256 * ((bits >> 40) % 256) / 249), rides.to[row] = uint16_t((bits >> 48) % zones);
        rides.passengers[row] = uint8_t(bits >> 60) % 6 + 1;
        rides.metres[row] = metres, rides.fare[row] = 300 + metres / 8 + seconds / 2;
        rides.tip[row] = (bits >> 23) % 3 ? rides.fare[row] / 6 : 0;
    }
    return rides;
}

__attribute__((noinline)) void select(const Column<int32_t> &metres, const Column<uint8_t> &passengers, int32_t at_least, Selection &selected) {
    uint64_t rows = metres.size(), count = 0;
    for (uint64_t row = 0; row < rows; row++) {
        selected[count] = uint32_t(row);
        count += uint64_t(metres[row] >= at_least) & uint64_t(passengers[row] >= 3);
    }
    selected.resize(count);
}

__attribute__((noinline)) int64_t total(const Column<int32_t> &values, const Selection &selected) {
    int64_t sum = 0;
    for (uint64_t at = 0; at < selected.size(); at++) sum += values[selected[at]];
    return sum;
}

struct Group {
    uint64_t rides = 0;
    int64_t fares = 0;
    int32_t longest = 0;
};

__attribute__((noinline)) void group(const Rides &rides, const Selection &selected, std::array<Group, zones> &groups) {
    for (uint64_t at = 0; at < selected.size(); at++) {
        uint32_t row = selected[at];
        Group &own = groups[rides.from[row]];
        own.rides++, own.fares += rides.fare[row], own.longest = std::max(own.longest, rides.metres[row]);
    }
}

template <class T> struct Extent {
    T least, greatest;
    int64_t sum;
};

template <class T> __attribute__((noinline)) Extent<T> extent(const T *values, uint64_t rows) {
    Extent<T> extent{values[0], values[0], 0};
    for (uint64_t row = 0; row < rows; row++) {
        extent.least = std::min(extent.least, values[row]), extent.greatest = std::max(extent.greatest, values[row]);
        extent.sum += int64_t(values[row]);
    }
    return extent;
}

template <class T> static void show(const char *name, const Column<T> &column) {
    Extent<T> found = extent(column.data(), column.size());
    printf("%s %ld %.3f %ld\n", name, long(found.least), double(found.sum) / double(column.size()), long(found.greatest));
}

static void filter(const Rides &rides, Selection &selected) {
    selected.resize(rides.metres.size());
    select(rides.metres, rides.passengers, 20000, selected);
    printf("filter %zu %.3f\n", selected.size(), double(total(rides.tip, selected)) / double(selected.size()));
}

static void group(const Rides &rides, Selection &selected) {
    selected.resize(rides.metres.size());
    select(rides.metres, rides.passengers, 12000, selected);
    std::array<Group, zones> groups;
    group(rides, selected, groups);
    for (unsigned zone = 0; zone < zones; zone += 40)
        printf("zone %u %lu %ld %d\n", zone, groups[zone].rides, groups[zone].fares, groups[zone].longest);
}

static void summary(const Rides &rides) {
    show("begin", rides.begin), show("end", rides.end), show("from", rides.from), show("to", rides.to);
    show("passengers", rides.passengers), show("metres", rides.metres), show("fare", rides.fare), show("tip", rides.tip);
}

int main(int argc, char **argv) {
    uint64_t bytes = argc == 3 ? strtoull(argv[2], nullptr, 10) << 20 : 0, rows = bytes / (row_bytes + sizeof(uint32_t));
    auto wants = [&](const char *query) { return argc == 3 && (!strcmp(argv[1], query) || !strcmp(argv[1], "all")); };
    if (!rows || !(wants("filter") || wants("group") || wants("summary"))) return fprintf(stderr, "usage: columns filter|group|summary|all MIB\n"), 2;
    Rides rides = fill(rows);
    Selection selected(rows);
    Timed timed;
    if (wants("filter")) filter(rides, selected);
    if (wants("group")) group(rides, selected);
    if (wants("summary")) summary(rides);
}
