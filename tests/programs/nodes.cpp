// Many small heap nodes in std::map and std::unordered_map, built and read by four threads.
//
// usage: nodes NODES      (nodes in all four threads together)
// Output: one checksum line for each thread; the same for the same NODES on every run.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t work(uint64_t seed, uint64_t nodes) {
    std::map<uint64_t, std::string> tree;
    std::unordered_map<uint64_t, uint64_t> table;
    uint64_t sum = seed;
    // Keys come in runs of 64 from random places: neighbours in the tree are often neighbours in time.
    for (uint64_t i = 0; i < nodes; i++) {
        uint64_t key = mix(seed ^ (i / 64)) + i % 64;
        if (i % 2) table[key] = i;
        else tree.emplace(key, std::string(20 + i % 13, static_cast<char>('a' + i % 26)));
    }
    for (const auto &[key, text] : tree) sum = mix(sum ^ key) + text.size() + static_cast<unsigned char>(text[0]);
    uint64_t found = 0;
    for (uint64_t i = 0; i < nodes; i += 97) {
        uint64_t key = mix(seed ^ (i / 64)) + i % 64;
        if (i % 2) found += table.count(key) ? table[key] : 0;
        else found += tree.count(key);
    }
    uint64_t erased = 0;
    for (auto it = tree.begin(); it != tree.end();) {
        if (it->first % 3 == 0) { it = tree.erase(it); erased++; }
        else ++it;
    }
    uint64_t rest = 0;
    for (const auto &[key, value] : table) rest += mix(key ^ value);  // a sum: the order of the table does not matter
    return mix(sum ^ found) ^ mix(erased) ^ rest;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    const unsigned threads = 4;
    uint64_t nodes = std::strtoull(argv[1], nullptr, 10) / threads;
    std::vector<uint64_t> sums(threads);
    std::vector<std::thread> running;
    for (unsigned t = 0; t < threads; t++) running.emplace_back([&, t] { sums[t] = work(t + 1, nodes); });
    for (auto &thread : running) thread.join();
    for (unsigned t = 0; t < threads; t++) std::printf("thread %u: %016llx\n", t, static_cast<unsigned long long>(sums[t]));
    return 0;
}
