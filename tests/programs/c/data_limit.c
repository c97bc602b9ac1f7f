/* Lives below a limit on private writable memory (RLIMIT_DATA) that is there when it starts.
 * usage: data_limit idle             prints VmData, in KiB
 *        data_limit fill MEBIBYTES   so much on the heap, a quarter of it in a mapping, and in a child
 *        data_limit reach            maps until it is refused, and goes on
 *        data_limit raise MEBIBYTES  is refused so much, raises its limit to four times that, and has it
 *        data_limit spread MEBIBYTES limits itself to so much, and uses a little of each 4 GiB of a reservation
 *        data_limit move MEBIBYTES   has a mapping of so much grow by a quarter where it must move, and move where it may only be read
 *        data_limit threads          starts threads until it is refused, and goes on
 *        data_limit refused          is refused mappings that other tables would be needed for, and goes on
 *        data_limit unseen           is refused a mapping below a limit that only the kernel knows, and goes on
 *        data_limit end MEBIBYTES    maps so much, has libc's heap take the rest, and uses the mapping */
#define _GNU_SOURCE
#include "pattern.h"
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

enum { PIECE_MIB = 8, PIECES = 4096 };

static uint64_t *map_bytes(size_t bytes) {
    uint64_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static uint64_t *map(uint64_t mebibytes) {
    return map_bytes(mebibytes << 20);
}

static uint64_t data_kib(void) {
    char line[200];
    uint64_t kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (strncmp(line, "VmData:", 7) == 0) kib = strtoul(line + 7, NULL, 10);
    fclose(status);
    return kib;
}

static int idle(void) {
    printf("%lu\n", data_kib());
    return 0;
}

static int fill_all(uint64_t mebibytes) {
    uint64_t *heap = patterned(mebibytes, 2), *mapped = map(mebibytes / 4);
    if (!mapped) return 98;
    fill(mapped, mebibytes * 64, 1);
    verify(heap, mebibytes * 256, 2, "heap");
    puts("filled");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        verify(heap, mebibytes * 256, 2, "heap in the child");
        fill(heap, mebibytes * 64, 3);
        verify(heap, mebibytes * 64, 3, "what the child has written");
        _exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    verify(heap, mebibytes * 256, 2, "heap after the fork");
    verify(mapped, mebibytes * 64, 1, "mapping");
    puts("done");
    return 0;
}

static int reach(void) {
    static uint64_t *pieces[PIECES];
    uint64_t count = 0;
    while (count < PIECES && (pieces[count] = map(PIECE_MIB))) {
        fill(pieces[count], PIECE_MIB * 256, count);
        count++;
    }
    /* The last of it, page by page. */
    for (uint64_t *page; (page = map_bytes(4096));) *page = 1;
    printf("refused: %s\n", count < PIECES ? strerror(errno) : "never");
    printf("heap: %d\n", malloc((size_t)PIECE_MIB * PIECES << 20) != NULL);
    for (uint64_t piece = 0; piece < count; piece++) verify(pieces[piece], PIECE_MIB * 256, piece, "piece");
    for (uint64_t piece = 0; piece < count / 2; piece++) munmap(pieces[piece], PIECE_MIB << 20);
    uint64_t *again = map(PIECE_MIB * 2);
    printf("again: %d\n", again != NULL);
    if (again) {
        fill(again, PIECE_MIB * 2 * 256, 77);
        verify(again, PIECE_MIB * 2 * 256, 77, "mapped again");
    }
    for (uint64_t piece = count / 2; piece < count; piece++) verify(pieces[piece], PIECE_MIB * 256, piece, "piece that stayed");
    puts(count >= 4 ? "done" : "too few");
    return 0;
}

static int raise_limit(uint64_t mebibytes) {
    struct rlimit limit;
    getrlimit(RLIMIT_DATA, &limit);
    printf("%lu MiB, refused %d\n", limit.rlim_cur >> 20, map(mebibytes) == NULL);
    limit.rlim_cur = mebibytes << 22;
    printf("raised %d\n", setrlimit(RLIMIT_DATA, &limit) == 0);
    getrlimit(RLIMIT_DATA, &limit);
    uint64_t *memory = map(mebibytes);
    printf("%lu MiB, refused %d\n", limit.rlim_cur >> 20, memory == NULL);
    if (!memory) return 98;
    fill(memory, mebibytes * 256, 1);
    verify(memory, mebibytes * 256, 1, "mapping");
    puts("done");
    return 0;
}

static int spread(uint64_t mebibytes) {
    enum { PLACES = 16 };
    const size_t step = (size_t)4 << 30, bytes = 1 << 20;
    struct rlimit limit;
    getrlimit(RLIMIT_DATA, &limit);
    limit.rlim_cur = mebibytes << 20;
    printf("set %d\n", setrlimit(RLIMIT_DATA, &limit) == 0);
    char *all = mmap(NULL, PLACES * step, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return 98;
    int had = 0;
    for (int place = 0; place < PLACES; place++)
        if (mprotect(all + place * step, bytes, PROT_READ | PROT_WRITE) == 0) {
            fill((uint64_t *)(all + place * step), bytes / 4096, place);
            had++;
        }
    for (int place = 0; place < had; place++) verify((uint64_t *)(all + place * step), bytes / 4096, place, "place");
    printf("had %d, refused %d\n", had, map(mebibytes) == NULL);
    puts("done");
    return 0;
}

/* What has grown moves past its neighbour; in the end to a place of its own, unwritable, and back to being writable. */
static int move(uint64_t mebibytes) {
    uint64_t pages = mebibytes * 256, grown = pages + pages / 4;
    char *room = mmap(NULL, (mebibytes + 1) << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint64_t *memory = mmap(room, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (memory == MAP_FAILED) return 98;
    fill(memory, pages, 1);
    uint64_t *moved = mremap(memory, pages << 12, grown << 12, MREMAP_MAYMOVE);
    printf("grown %d, moved %d\n", moved != MAP_FAILED, moved != memory);
    if (moved == MAP_FAILED) return 98;
    verify(moved, pages, 1, "what has moved");
    for (uint64_t page = pages; page < grown; page++)
        if (moved[page * PAGE_WORDS] != 0) return 97;
    fill(moved, grown, 2);
    printf("refused %d\n", mremap(moved, grown << 12, grown << 16, MREMAP_MAYMOVE) == MAP_FAILED);
    verify(moved, grown, 2, "after a refusal");
    mprotect(moved, grown << 12, PROT_READ);
    void *place = mmap(NULL, grown << 12, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint64_t *read_only = mremap(moved, grown << 12, grown << 12, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    printf("in place %d\n", read_only == place);
    if (read_only != place) return 98;
    verify(read_only, grown, 2, "what may be read only");
    printf("writable %d\n", mprotect(read_only, grown << 12, PROT_READ | PROT_WRITE) == 0);
    fill(read_only, grown, 3);
    verify(read_only, grown, 3, "what may be written again");
    puts("done");
    return 0;
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void *wait_for_all(void *unused) {
    pthread_mutex_lock(&held);
    pthread_mutex_unlock(&held);
    return unused;
}

static int wait_for_all_too(void *unused) {
    return wait_for_all(unused) != NULL;
}

static int start_threads(void) {
    enum { MAX = 4096, MIB = 128 };
    static pthread_t started[MAX];
    uint64_t *memory = map(MIB);
    if (!memory) return 98;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 1 << 20);
    pthread_mutex_lock(&held);
    int count = 0, refused = 0;
    while (count < MAX && (refused = pthread_create(&started[count], &attributes, wait_for_all, NULL)) == 0) count++;
    printf("refused: %s\n", strerror(refused));
    /* With a stack of libc's usual size, or of half of the limit. */
    thrd_t other;
    printf("another: %d\n", thrd_create(&other, wait_for_all_too, NULL));
    fill(memory, MIB * 256, 1);
    verify(memory, MIB * 256, 1, "mapping beside threads");
    pthread_mutex_unlock(&held);
    for (int thread = 0; thread < count; thread++) pthread_join(started[thread], NULL);
    printf("again: %d\n", pthread_create(&started[0], &attributes, wait_for_all, NULL));
    pthread_join(started[0], NULL);
    puts(count >= 16 ? "done" : "too few");
    return 0;
}

/* What is refused leaves nothing behind. Natively the second one costs nothing; here it may be refused. */
static int refused(void) {
    uint64_t before = data_kib();
    for (int round = 0; round < 20; round++) {
        if (map((uint64_t)(64 + round) << 10)) return 98;
        void *read_only = mmap(NULL, (size_t)(128 + round) << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (read_only != MAP_FAILED) munmap(read_only, (size_t)(128 + round) << 30);
    }
    printf("grown by less than 40 MiB: %d\n", data_kib() < before + (40 << 10));
    uint64_t *memory = map(128);
    if (!memory) return 98;
    fill(memory, 128 * 256, 1);
    verify(memory, 128 * 256, 1, "mapping");
    puts("done");
    return 0;
}

/* As `refused`, below a limit that a child sets for its parent: the kernel alone knows of it. */
static int unseen(void) {
    uint64_t before = data_kib();
    if (fork() == 0) {
        struct rlimit limit;
        getrlimit(RLIMIT_DATA, &limit);
        limit.rlim_cur = (before << 10) + ((uint64_t)256 << 20);
        _exit(prlimit(getppid(), RLIMIT_DATA, &limit, NULL));
    }
    int status = 0;
    wait(&status);
    printf("set %d, refused %d\n", status == 0, map(16 << 10) == NULL);
    printf("grown by less than 20 MiB: %d\n", data_kib() < before + (20 << 10));
    uint64_t *memory = map(64);
    if (!memory) return 98;
    fill(memory, 64 * 256, 1);
    verify(memory, 64 * 256, 1, "mapping");
    puts("done");
    return 0;
}

void *__libc_malloc(size_t bytes);

static int end(uint64_t mebibytes) {
    uint64_t *memory = map(mebibytes);
    if (!memory) return 98;
    for (size_t bytes = 64 << 10; bytes >= 64; bytes /= 2)
        while (__libc_malloc(bytes)) continue;
    fill(memory, mebibytes * 256, 1);
    verify(memory, mebibytes * 256, 1, "mapping");
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "fill") == 0) return fill_all(strtoull(argv[2], NULL, 10));
    if (argc > 2 && strcmp(argv[1], "raise") == 0) return raise_limit(strtoull(argv[2], NULL, 10));
    if (argc > 2 && strcmp(argv[1], "spread") == 0) return spread(strtoull(argv[2], NULL, 10));
    if (argc > 2 && strcmp(argv[1], "move") == 0) return move(strtoull(argv[2], NULL, 10));
    if (argc > 2 && strcmp(argv[1], "end") == 0) return end(strtoull(argv[2], NULL, 10));
    if (argc > 1 && strcmp(argv[1], "threads") == 0) return start_threads();
    if (argc > 1 && strcmp(argv[1], "refused") == 0) return refused();
    if (argc > 1 && strcmp(argv[1], "unseen") == 0) return unseen();
    return argc > 1 && strcmp(argv[1], "reach") == 0 ? reach() : idle();
}
