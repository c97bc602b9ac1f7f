/* A program with a megabyte of thread-local storage, which libc takes from the stack of each thread: of the library's, too. One of these evicts. */
#define _GNU_SOURCE
#include "pattern.h"
#include <dirent.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { MEBIBYTES = 64, LOOKS = 10000 };

static __thread volatile char storage[1 << 20];

static int is_evictor(const char *thread) {
    char path[320], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", thread);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    int is = fgets(name, sizeof name, file) && !strcmp(name, "far-evictor\n");
    fclose(file);
    return is;
}

static int evictors(void) {
    int count = 0;
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *entry; threads && (entry = readdir(threads));) count += is_evictor(entry->d_name);
    if (threads) closedir(threads);
    return count;
}

static void *fill_storage(void *unused) {
    for (size_t i = 0; i < sizeof storage; i += 512) storage[i] = (char)i;
    return unused;
}

int main(void) {
    uint64_t *words = patterned(MEBIBYTES, 7);
    pthread_t thread;
    if (pthread_create(&thread, NULL, fill_storage, NULL) || pthread_join(thread, NULL)) return 1;
    fill_storage(NULL);
    verify(words, MEBIBYTES * 256, 7, "memory");
    /* It has begun, but it may not have had a processor yet. */
    for (int i = 0; i < LOOKS && !evictors(); i++) usleep(1000);
    printf("right, evictors %d\n", evictors());
    return 0;
}
