/* Reserves memory before any library begins.
 *
 * early_pool        inside the far range
 * early_pool low    the lowest 4 GiB, as Chromium does, which it never uses; opens a part at their end, gives all of them back, and tells how
 *                   many threads it sees, as Chromium's zygote does, natively and with memory enough for threads of ours */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char *pool;

static void *at(unsigned long address, unsigned long bytes) {
    return mmap((void *)address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void reserve(int count, char **words) {
    pool = count == 2 && !strcmp(words[1], "low") ? at(0x10000, 1ul << 32) : at(0x490000000000, 1ul << 34);
}
__attribute__((section(".preinit_array"), used)) static void (*first)(int, char **) = reserve;

static int threads(const char *path) {
    struct stat found, same;
    int proc = stat("/proc", &found);
    if (proc || stat(path, &found) || fstatat(AT_FDCWD, path, &same, 0)) return -1;
    return found.st_nlink == same.st_nlink ? (int)found.st_nlink - 2 : -2;
}

int main(int count, char **words) {
    (void)words;
    printf("a pool %d\n", pool != MAP_FAILED);
    if (count == 1) return 0;
    size_t bytes = 24 << 20;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), path[32];
    for (size_t page = 0; page < bytes; page += 4096) memory[page] = 1;
    sprintf(path, "/proc/%d/task/", getpid());
    printf("threads %d %d\n", threads("/proc/self/task"), threads(path));
    char *end = pool + (1ul << 32) - 4096;
    int opened = mprotect(end, 4096, PROT_READ | PROT_WRITE);
    if (!opened) *end = 1;
    int closed = mprotect(pool, 1ul << 32, PROT_NONE), gone = munmap(pool, 1ul << 32);
    printf("low %d, opened %d, closed %d, gone %d\n", pool == (char *)0x10000, opened, closed, gone);
    return 0;
}
