// A program that works in a part of its memory, and in its second half in another part.
//
// usage: working_set MIB ROUNDS FIRST [SECOND]      (of MIB MiB it works in the first FIRST, and after half of the rounds in the last SECOND)
// Output: a digest of what it read and of all memory in the end, the same on every run. Says on standard error when each round is over. A quarter of each page
// is random.
#include "common.h"
#include <cstdio>
#include <cstdlib>
#include <vector>

// Words of a page, and accesses of a round, of which one in so many goes anywhere.
constexpr uint64_t WORDS = 512, ACCESSES = 1 << 20, ELSEWHERE = 1 << 14;

int main(int argc, char **argv) {
    const uint64_t mib = argc > 3 ? strtoull(argv[1], nullptr, 10) : 0, rounds = argc > 3 ? strtoull(argv[2], nullptr, 10) : 0;
    const uint64_t first = argc > 3 ? strtoull(argv[3], nullptr, 10) : 0, second = argc > 4 ? strtoull(argv[4], nullptr, 10) : 0;
    if (!first || first > mib || second > mib) return fprintf(stderr, "usage: working_set MIB ROUNDS FIRST [SECOND], neither of which is more than MIB\n"), 2;
    constexpr uint64_t words_of_mib = (1 << 20) / sizeof(uint64_t);
    std::vector<uint64_t> memory(mib * words_of_mib);
    for (uint64_t at = 0; at < memory.size(); at++) memory[at] = at % WORDS < WORDS / 4 ? next() : at / WORDS;
    uint64_t digest = 0;
    rounds_over(0);
    for (uint64_t round = 1; round <= rounds; round++) {
        const bool in_second = second && round > rounds / 2;
        const uint64_t begin = in_second ? memory.size() - second * words_of_mib : 0, count = (in_second ? second : first) * words_of_mib;
        for (uint64_t access = 0; access < ACCESSES; access++) {
            uint64_t &word = access % ELSEWHERE ? memory[begin + next() % count] : memory[next() % memory.size()];
            digest += word++;
        }
        rounds_over(round);
    }
    for (uint64_t word : memory) digest = digest * 31 + word;
    printf("digest %016llx\n", (unsigned long long)digest);
}
