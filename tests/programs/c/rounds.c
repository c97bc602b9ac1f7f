/* Changes and verifies memory page by page, round after round, until there is a file "enough" in the working directory; a child
 * that it forks in each second round verifies what it got. Half as much beside it never changes; children and the end verify it.
 * Between two rounds it rests as long as there is a file "rest". Says how long the longest step of a page took.
 * usage: rounds MEBIBYTES [fork] */
#include "pattern.h"
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
    uint64_t pages = strtoull(argc > 1 ? argv[1] : "64", NULL, 10) * 256, still_pages = pages / 2;
    int forks = argc > 2 && strcmp(argv[2], "fork") == 0;
    uint64_t *still = patterned(still_pages / 256, 1), *memory = patterned(pages / 256, 1);
    double longest_ms = 0;
    uint64_t version = 1;
    for (int enough = 0; !enough; version++) {
        enough = access("enough", F_OK) == 0;
        for (uint64_t page = 0; page < pages; page++) {
            double begun = now_ms();
            uint64_t *words = memory + page * PAGE_WORDS;
            for (uint64_t word = 0; word < PAGE_WORDS; word++) {
                if (words[word] != pattern_word(page, word, version)) {
                    printf("WRONG: version %llu page %llu\n", (unsigned long long)version, (unsigned long long)page);
                    fflush(stdout);
                    _Exit(99);
                }
                words[word] = pattern_word(page, word, version + 1);
            }
            double took_ms = now_ms() - begun;
            if (took_ms > longest_ms) longest_ms = took_ms;
        }
        printf("round %llu\n", (unsigned long long)version);
        fflush(stdout);
        int rests = access("rest", F_OK) == 0;
        if (rests) {
            printf("resting\n");
            fflush(stdout);
        }
        for (; rests; rests = access("rest", F_OK) == 0) usleep(10000);
        if (forks && version % 2 == 0) {
            pid_t child = fork();
            if (child == 0) {
                verify(memory, pages, version + 1, "child");
                verify(still, still_pages, 1, "child's part that never changes");
                _exit(0);
            }
            int status = 0;
            if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
                printf("child %d\n", status);
                return 97;
            }
        }
    }
    verify(memory, pages, version, "at the end");
    verify(still, still_pages, 1, "at the end in the part that never changes");
    printf("done, longest %.0f ms\n", longest_ms);
    return 0;
}
