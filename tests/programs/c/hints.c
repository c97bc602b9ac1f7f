/* Gives hints about its memory, and checks every page.
 *
 * hints walk PAGES ROUNDS AHEAD    pages in a random order, each fetched AHEAD of its use (0: no hints)
 * hints high PAGES ROUNDS AHEAD    the same above 8 TiB that are reserved first, as MariaDB does
 * hints loop PAGES ROUNDS AHEAD    as walk, by the table of compiled code; AHEAD is not used
 * hints search PAGES ROUNDS FEW    what a loop that may end early learns: it begins with FEW pages
 * hints useless PAGES ROUNDS AHEAD as walk, but what is fetched is not what is used
 * hints evict PAGES ROUNDS SOON    each page is given up behind its use, in order
 * hints keep PAGES ROUNDS SHARE    the first 1/SHARE of the pages is kept, the others are walked
 * hints overwrite PAGES ROUNDS AT  AT pages are named and then overwritten, in order (0: not named)
 * hints answered PAGES ROUNDS AT  each AT-th page is named to be overwritten, and a call of the kernel's writes a word of it
 * hints abuse PAGES ROUNDS SEED    hints that name anything, from threads, handlers and children
 *
 * Every page holds its number. Prints the seconds of the walks and "done". */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <hinterland.h>

#define PAGE 4096

#ifdef NOTE_VERSION
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
/* As compiled code has it: the owner, the version of the interface, the digest of the plan. */
__asm__(".pushsection .note.hinterland, \"a\", @note\n.balign 4\n.long 11, 36, 1\n.asciz \"Hinterland\"\n.balign 4\n"
        ".long " TEXT(NOTE_VERSION) "\n.zero 32\n.popsection");
#endif

static uint64_t pages, rounds, argument;
static unsigned char *memory;
static void *freed;
static uint32_t *order;

static uint64_t draw(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void wrong(uint64_t page) {
    printf("WRONG page %llu\n", (unsigned long long)page);
    fflush(stdout);
    _Exit(99);
}

static volatile uint64_t *words(uint64_t page) { return (volatile uint64_t *)(memory + page * PAGE); }

static const void *place(uint64_t page) { return memory + page * PAGE; }

static void check(uint64_t page) {
    if (words(page)[3] != page + 1 || words(page)[511] != ~page) wrong(page);
}

/* An inline function that is not static, as in a header, may give hints. */
inline __attribute__((always_inline)) void next_phase(unsigned id) { hinterland_phase(id); }

/* Arguments are evaluated once, also where there is no Hinterland. */
static void must_evaluate(void) {
    unsigned count = 0;
    const struct hinterland_hints *table = NULL;
    int began = hinterland_begin((count++, HINTERLAND_AUTO)), ended = hinterland_end();
    hinterland_fetch(memory, (count++, 0));
    hinterland_fetchv((count++, NULL), 0, 0);
    hinterland_evict((count++, memory), 0);
    hinterland_evict_soon(memory, (count++, 0));
    hinterland_keep((count++, memory), 0);
    hinterland_release(memory, (count++, 0));
    hinterland_overwrite((count++, memory), 0);
    next_phase(count++);
    table = hinterland_hints((count++, 99));
    if (count != 10 || began || ended || table) {
        printf("WRONG: %u of 10 arguments were evaluated; %d %d %d\n", count, began, ended, table != NULL);
        fflush(stdout);
        _Exit(97);
    }
}

static void fill(void) {
    memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    order = malloc(pages * sizeof *order);
    if (memory == MAP_FAILED || !order) exit(3);
    for (uint64_t page = 0; page < pages; page++) {
        /* Content that does not compress to nothing. */
        uint64_t state = page * 2654435761u + 1;
        for (int word = 0; word < 256; word++) words(page)[word] = draw(&state);
        words(page)[3] = page + 1;
        words(page)[511] = ~page;
        order[page] = (uint32_t)page;
    }
    uint64_t state = 88172645463325252u;
    for (uint64_t at = pages - 1; at > 0; at--) {
        uint64_t other = draw(&state) % (at + 1);
        uint32_t page = order[at];
        order[at] = order[other];
        order[other] = page;
    }
}

static uint64_t work(uint64_t page) {
    check(page);
    uint64_t sum = 0;
    for (int word = 0; word < 512; word++) sum += words(page)[word];
    return sum;
}

static uint64_t walk(int useless) {
    uint64_t sum = 0;
    for (uint64_t at = 0; at < pages; at++) {
        if (argument && at + argument < pages) {
            uint64_t page = order[at + argument];
            /* The other half of memory: it is never used. */
            hinterland_fetch(place(useless ? page / 2 + pages / 2 : page), PAGE);
        }
        sum += work(useless ? order[at] / 2 : order[at]);
    }
    return sum;
}

static struct hinterland_loop loop = {.name = "walk_loop hints.c:104:5"};

static uint64_t walk_loop(void) {
    const struct hinterland_hints *hints = hinterland_hints(1);
    uint64_t ahead = hints ? hints->loop_begin(&loop, memory, pages * PAGE, pages) : 0, sum = 0;
    for (uint64_t at = 0; at < pages; at++) {
        if (ahead && at % 16 == 0) {
            const void *coming[16];
            size_t count = 0;
            for (uint64_t next = at + ahead; next < at + ahead + 16 && next < pages; next++) coming[count++] = place(order[next]);
            hints->loop_fetchv(&loop, coming, count, PAGE);
        }
        sum += work(order[at]);
    }
    if (ahead) hints->loop_end(&loop, pages);
    return sum;
}

static void ask(uint64_t few, uint64_t all) {
    static struct hinterland_loop search = {.name = "search hints.c:155:5"};
    const struct hinterland_hints *hints = hinterland_hints(1);
    uint64_t ahead = hints ? hints->loop_search(&search, memory, few * PAGE, few, memory, all * PAGE, all) : 0;
    const char *said = !ahead ? "near" : ahead == UINT64_MAX ? "later" : ahead <= few ? "far" : "WRONG";
    printf("of %llu and %llu pages: %s\n", (unsigned long long)few, (unsigned long long)all, said);
}

/* The first pages have left, and come back. */
static uint64_t search(void) {
    uint64_t sum = 0;
    ask(argument, pages);
    for (uint64_t page = 0; page < argument; page++) sum += work(page);
    ask(argument, pages);
    ask(argument, argument);
    return sum;
}

static uint64_t walk_behind(void) {
    uint64_t sum = 0;
    for (uint64_t page = 0; page < pages; page++) {
        sum += work(page);
        if (page % 64 == 63) {
            if (argument) hinterland_evict_soon(place(page - 63), 64 * PAGE);
            else hinterland_evict(place(page - 63), 64 * PAGE);
        }
    }
    return sum;
}

static uint64_t walk_beside(void) {
    uint64_t kept = pages / argument, sum = 0;
    for (uint64_t at = 0; at < pages; at++) {
        if (order[at] >= kept) sum += work(order[at]);
        sum += work(at % kept);
    }
    return sum;
}

/* Writes every word of a page, with content of this round. */
static void write_whole(uint64_t page, uint64_t round) {
    uint64_t state = (round << 32) + page + 1;
    for (int word = 0; word < 512; word++) words(page)[word] = draw(&state);
    words(page)[3] = page + 1;
    words(page)[511] = ~page;
}

static void must_be_whole(uint64_t page, uint64_t round) {
    uint64_t state = (round << 32) + page + 1;
    check(page);
    for (int word = 0; word < 511; word++) {
        uint64_t value = draw(&state);
        if (word != 3 && words(page)[word] != value) wrong(page);
    }
}

static uint64_t overwrite(uint64_t round) {
    for (uint64_t at = 0; at < pages; at++) {
        if (argument && at % argument == 0) hinterland_overwrite(memory + at * PAGE, argument * PAGE);
        write_whole(at, round);
    }
    return round;
}

/* What a call writes is a part of its page: the rest stays what it was. */
static uint64_t answered(void) {
    uint64_t calls = 0;
    for (uint64_t at = 0; at < pages; at += argument, calls++) {
        hinterland_overwrite(memory + at * PAGE, PAGE);
        if (sigprocmask(SIG_BLOCK, NULL, (sigset_t *)(memory + at * PAGE + 8))) exit(4);
        check(at);
    }
    return calls;
}

/* Promises that are kept, because nothing is written there; or have no effect. */
static void promise_any(uint64_t *state) {
    const struct hinterland_hints *hints = hinterland_hints(1);
    void *addresses[] = {state, NULL, (void *)UINTPTR_MAX};
    uint64_t page = draw(state) % pages;
    if (draw(state) % 4 == 0) hinterland_overwrite(addresses[draw(state) % 3], draw(state) % (PAGE / 2));
    else if (draw(state) % 3 == 0) hinterland_overwrite(freed, draw(state) % (1 << 20));
    else if (hints) hints->overwrite(memory + page * PAGE + draw(state) % PAGE, draw(state) % ((pages - page) * PAGE));
}

/* An address of any kind: far, near, freed, not mapped, nonsense. */
static void *any_address(uint64_t *state, void *freed) {
    switch (draw(state) % 8) {
    case 0: return (void *)draw(state);
    case 1: return (void *)(uintptr_t)(0x480000000000u + draw(state) % (1ull << 42));
    case 2: return state;
    case 3: return (unsigned char *)freed + draw(state) % (1 << 20);
    case 4: return NULL;
    default: return memory + draw(state) % (pages * PAGE);
    }
}

static size_t any_length(uint64_t *state) {
    switch (draw(state) % 6) {
    case 0: return SIZE_MAX - draw(state) % 3;
    case 1: return draw(state) % (pages * PAGE);
    case 2: return 0;
    default: return draw(state) % (16 * PAGE);
    }
}

static uint64_t any_count(uint64_t *state) {
    switch (draw(state) % 4) {
    case 0: return UINT64_MAX - draw(state) % 3;
    case 1: return draw(state) % 2;
    default: return draw(state) % 1000;
    }
}

/* A loop that names anything, may begin others, and may be left without its end. */
static void hint_loop(uint64_t *state, void *freed, int depth) {
    static struct hinterland_loop loops[64];
    const struct hinterland_hints *hints = hinterland_hints(1);
    struct hinterland_loop *of = draw(state) % 64 ? &loops[draw(state) % 64] : NULL;
    if (!hints) return;
    uint64_t iterations = any_count(state), is_search = draw(state) % 2, ahead;
    void *from = any_address(state, freed), *all = any_address(state, freed);
    if (is_search) ahead = hints->loop_search(of, from, any_length(state), iterations, all, any_length(state), any_count(state));
    else ahead = hints->loop_begin(of, from, any_length(state), iterations);
    if (ahead > (iterations ? iterations : 1) && !(is_search && ahead == UINT64_MAX)) wrong(ahead);
    for (uint64_t at = draw(state) % 4; at; at--) {
        const void *several[] = {any_address(state, freed), any_address(state, freed), any_address(state, freed)};
        switch (draw(state) % 5) {
        case 0: hints->loop_fetch(of, several[0], any_length(state)); break;
        case 1: hints->loop_fetchv(of, several, 3, any_length(state)); break;
        case 2: hints->loop_fetchv(of, NULL, draw(state), any_length(state)); break;
        case 3: hints->loop_evict(of, several[0], any_length(state) % (64 * PAGE), (int)draw(state) % 2); break;
        default:
            if (depth < 3) hint_loop(state, freed, depth + 1);
        }
    }
    if (draw(state) % 3) hints->loop_end(of, any_count(state));
}

static void hint(uint64_t *state, void *freed) {
    void *address = any_address(state, freed);
    size_t length = any_length(state);
    const void *several[] = {address, any_address(state, freed), any_address(state, freed), address};
    switch (draw(state) % 11) {
    case 0: hinterland_evict(address, length % (64 * PAGE)); break;
    case 1: hinterland_evict_soon(address, length); break;
    case 2: hinterland_keep(address, length); break;
    case 3: hinterland_release(address, length); break;
    case 4: hinterland_phase((unsigned)draw(state)); break;
    case 5: hinterland_fetchv(several, 4, length); break;
    case 6: hinterland_fetchv(NULL, draw(state), length); break;
    case 7:
    case 8: hint_loop(state, freed, 0); break;
    case 9: promise_any(state); break;
    default: hinterland_fetch(address, length);
    }
}

static void *freed_memory(void) {
    void *freed = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (freed == MAP_FAILED) exit(3);
    memset(freed, 7, 1 << 20);
    hinterland_keep(freed, 1 << 20);
    munmap(freed, 1 << 20);
    return freed;
}

static void on_alarm(int signal) {
    static uint64_t state = 4711;
    (void)signal;
    for (int at = 0; at < 8; at++) hint(&state, freed);
}

static void *abuse(void *seed) {
    uint64_t state = argument * 977 + (uintptr_t)seed * 131 + 5;
    for (uint64_t at = 0; at < rounds; at++) {
        hint(&state, freed);
        check(draw(&state) % pages);
    }
    return NULL;
}

static void abuse_everywhere(void) {
    freed = freed_memory();
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 3000}, {0, 3000}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    pthread_t threads[3];
    for (uintptr_t at = 0; at < 3; at++) pthread_create(&threads[at], NULL, abuse, (void *)(at + 1));
    for (int child = 0; child < 3; child++) {
        pid_t pid = fork();
        if (pid == 0) {
            abuse((void *)(uintptr_t)(child + 10));
            _exit(0);
        }
        int status = 0;
        while (waitpid(pid, &status, 0) < 0) {}
        if (status) {
            printf("WRONG child %x\n", (unsigned)status);
            _Exit(98);
        }
    }
    for (int at = 0; at < 3; at++) pthread_join(threads[at], NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    hinterland_release(NULL, SIZE_MAX);
    for (uint64_t page = 0; page < pages; page++) check(page);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    pages = strtoull(argv[2], NULL, 0);
    rounds = strtoull(argv[3], NULL, 0);
    argument = strtoull(argv[4], NULL, 0);
    const char *mode = argv[1];
    if (!strcmp(mode, "high") && mmap(NULL, 8ull << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED) return 3;
    must_evaluate();
    fill();
    double begin = now();
    uint64_t sum = 0;
    if (!strcmp(mode, "abuse")) {
        abuse_everywhere();
    } else {
        if (!strcmp(mode, "keep")) hinterland_keep(memory, pages / argument * PAGE);
        for (uint64_t round = 0; round < rounds; round++) {
            hinterland_phase((unsigned)round);
            if (!strcmp(mode, "walk") || !strcmp(mode, "high")) sum += walk(0);
            else if (!strcmp(mode, "useless")) sum += walk(1);
            else if (!strcmp(mode, "loop")) sum += walk_loop();
            else if (!strcmp(mode, "search")) sum += search();
            else if (!strcmp(mode, "evict")) sum += walk_behind();
            else if (!strcmp(mode, "keep")) sum += walk_beside();
            else if (!strcmp(mode, "overwrite")) sum += overwrite(round);
            else if (!strcmp(mode, "answered")) sum += answered();
            else return 2;
        }
    }
    if (!strcmp(mode, "overwrite")) {
        for (uint64_t page = 0; page < pages; page++) must_be_whole(page, rounds - 1);
    }
    printf("%.3f seconds, sum %llx\ndone\n", now() - begin, (unsigned long long)sum);
    return 0;
}
