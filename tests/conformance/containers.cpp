// C++: every form of new and delete, containers of many small nodes, exceptions for impossible sizes.
#include "check.h"
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

struct alignas(256) Wide { char bytes[300]; };

static void forms() {
    int *one = new int(5), *many = new int[100000]();
    SHOW(*one), SHOW(nonzero(many, 400000));
    delete one, delete[] many;
    Wide *wide = new Wide, *wides = new Wide[1000];
    SHOW((uintptr_t)wide % 256 + (uintptr_t)wides % 256);
    delete wide, delete[] wides;
    volatile size_t huge = PTRDIFF_MAX;
    SHOW(new (std::nothrow) char[huge] == nullptr);
    bool thrown = false;
    try { delete[] new char[huge]; } catch (const std::bad_alloc &) { thrown = true; }
    SHOW(thrown);
    auto shared = std::make_shared<std::vector<std::string>>(1000, std::string(100, 'x'));
    std::weak_ptr<std::vector<std::string>> weak = shared;
    shared.reset();
    SHOW(weak.expired());
}

static uint64_t nodes(uint64_t seed) {
    std::map<uint64_t, std::string> ordered;
    std::unordered_map<uint64_t, std::vector<int>> hashed;
    std::deque<uint64_t> queue;
    for (uint64_t i = 0; i < 60000; i++) {
        uint64_t k = mix(seed + i) % 50000;
        ordered[k] += std::to_string(i);
        hashed[k].push_back((int)i);
        queue.push_back(k);
        if (i % 3 == 0) ordered.erase(queue.front()), hashed.erase(queue.front()), queue.pop_front();
    }
    uint64_t hash = 0;
    for (auto &[k, v] : ordered) hash = mix(hash ^ k ^ std::hash<std::string>()(v));
    for (uint64_t k = 0; k < 50000; k++)
        if (auto it = hashed.find(k); it != hashed.end())
            for (int i : it->second) hash = mix(hash ^ (uint64_t)i);
    return hash;
}

int main() {
    forms();
    std::vector<uint64_t> results(4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) threads.emplace_back([&, i] { results[i] = nodes(i); });
    for (auto &thread : threads) thread.join();
    for (uint64_t r : results) SHOW(r);
    std::vector<uint64_t> growing;
    for (uint64_t i = 0; i < 4000000; i++) growing.push_back(mix(i));
    size_t bad = 0;
    for (uint64_t i = 0; i < growing.size(); i++) bad += growing[i] != mix(i);
    SHOW(bad);
}
