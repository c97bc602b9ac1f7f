/* Thousands of children, some at a time: each finds its parent's memory as it was at its fork, changes pages of it at random, and
 * finds its changes; the parent goes on changing its own, and kills some of them at random moments.
 * usage: fork_storm CHILDREN AT_A_TIME KILLED_OF_100 */
#define _GNU_SOURCE
#include "pattern.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEBIBYTES = 24, PAGES = MEBIBYTES * 256, TOUCHES = 50, MOST = 64 };

/* The model: with which seed each page was filled last. Not far. */
static uint32_t version[PAGES];
static uint64_t state;

static uint64_t next(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

static void change(uint64_t *memory, uint64_t page, uint32_t seed) {
    for (int word = 0; word < PAGE_WORDS; word += 73) memory[page * PAGE_WORDS + word] = pattern_word(page, word, seed);
    version[page] = seed;
}

static int is_right(const uint64_t *memory, uint64_t page) {
    for (int word = 0; word < PAGE_WORDS; word += 73)
        if (memory[page * PAGE_WORDS + word] != pattern_word(page, word, version[page])) return 0;
    return 1;
}

static void child(uint64_t *memory, uint32_t number) {
    uint64_t pages[TOUCHES];
    for (int touch = 0; touch < TOUCHES; touch++) {
        pages[touch] = next() % PAGES;
        if (!is_right(memory, pages[touch])) _exit(99);
        if (touch % 2) change(memory, pages[touch], 1000000 + number);
    }
    for (int touch = 0; touch < TOUCHES; touch++)
        if (!is_right(memory, pages[touch])) _exit(97);
    _exit(0);
}

static pid_t live[MOST];
static int killed[MOST], right;

static void wait_for_one(void) {
    int status;
    pid_t ended = wait(&status);
    for (int i = 0; i < MOST; i++)
        if (live[i] == ended) {
            right += status == 0 || (killed[i] && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
            live[i] = 0;
        }
}

int main(int argc, char **argv) {
    int children = argc > 1 ? atoi(argv[1]) : 1000, most = argc > 2 ? atoi(argv[2]) : 8, kills = argc > 3 ? atoi(argv[3]) : 0;
    uint64_t *memory = patterned(MEBIBYTES, 1);
    for (uint64_t page = 0; page < PAGES; page++) change(memory, page, 1);
    int count = 0;
    for (int number = 0; number < children; number++) {
        if (count == most) wait_for_one(), count--;
        for (int i = 0; i < 20; i++) change(memory, next() % PAGES, 2 + number);
        int place = 0;
        while (live[place]) place++;
        state += number;
        pid_t pid = fork();
        if (pid < 0) return 98;
        if (pid == 0) child(memory, number);
        live[place] = pid, killed[place] = next() % 100 < (uint64_t)kills;
        if (killed[place]) {
            for (int i = 0; i < 20; i++) change(memory, next() % PAGES, 2 + number);
            usleep(next() % 3000);
            kill(pid, SIGKILL);
        }
        count++;
    }
    for (; count; count--) wait_for_one();
    int bad = 0;
    for (uint64_t page = 0; page < PAGES; page++) bad += !is_right(memory, page);
    printf("%d of %d children right, %d pages wrong\n", right, children, bad);
    return bad != 0;
}
