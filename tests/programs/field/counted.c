/* Counts its threads in /proc/self/stat after a fork, as CPython does before it warns (warn_about_fork_with_threads in posixmodule.c), and
 * in other ways: by its number, by a directory, with a second thread, in children of fork and vfork, and of one that may write no file. */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t pages = 32 * 256;
static uint64_t *memory;

/* Field 20, behind the name, and whether the others are this process's. */
static int counted(const char *text, int *own) {
    int number = 0, fields = 19, threads = 0;
    const char *at = strrchr(text, ')');
    if (!at) return -1;
    for (const char *space = at; (space = strchr(space + 1, ' '));) {
        if (++number == 18) threads = atoi(space + 1);
        fields++;
    }
    *own = atoi(text) == getpid() && fields > 50 && text[strlen(text) - 1] == '\n';
    return threads;
}

static int by_descriptor(int file, int *own) {
    char text[1024];
    ssize_t bytes = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    if (bytes < 0) return -2;
    text[bytes] = 0;
    return counted(text, own);
}

/* As CPython has it. */
static int by_stream(const char *path) {
    char line[160], *rest = NULL;
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    size_t bytes = fread(line, 1, sizeof line - 1, file);
    line[bytes] = 0;
    fclose(file);
    char *field = strtok_r(line, " ", &rest);
    for (unsigned left = 19; left && field; left--) field = strtok_r(NULL, " ", &rest);
    return field ? atoi(field) : -1;
}

static void count(const char *when) {
    char path[64];
    int own[3] = {0};
    snprintf(path, sizeof path, "/proc/%d/stat", getpid());
    int directory = open("/proc/self", O_RDONLY | O_DIRECTORY);
    int stays = open("/proc/self/stat", O_RDONLY), closes = open(path, O_RDONLY | O_CLOEXEC);
    int flags = fcntl(stays, F_GETFD) * 2 + fcntl(closes, F_GETFD);
    printf("%s: %d %d, ", when, by_stream("/proc/self/stat"), by_stream(path));
    printf("%d %d %d, ", by_descriptor(stays, own), by_descriptor(closes, own + 1), by_descriptor(openat(directory, "stat", O_RDONLY), own + 2));
    printf("own %d%d%d, flags %d\n", own[0], own[1], own[2], flags);
    fflush(stdout);
    close(directory);
}

static void *beside(void *unused) {
    count("with a second thread");
    return unused;
}

int main(void) {
    memory = patterned(pages / 256, 1);
    count("at first");
    int go[2];
    char byte = 0;
    if (pipe(go)) return 2;
    pid_t child = fork();
    if (child == 0) {
        if (read(go[0], &byte, 1) != 1) _exit(3);
        verify(memory, pages, 1, "child");
        fill(memory, pages, 2);
        count("child");
        _exit(0);
    }
    count("after the fork");
    if (write(go[1], &byte, 1) != 1) return 4;
    int status = -1;
    waitpid(child, &status, 0);
    pthread_t other;
    if (pthread_create(&other, NULL, beside, NULL) || pthread_join(other, NULL)) return 1;
    volatile int threads = -1;
    child = vfork();
    if (child == 0) {
        int own;
        threads = by_descriptor(open("/proc/self/stat", O_RDONLY), &own);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    int writes_nothing = -1;
    child = fork();
    if (child == 0) {
        int own;
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0});
        _exit(by_descriptor(open("/proc/self/stat", O_RDONLY), &own) < 1);
    }
    waitpid(child, &writes_nothing, 0);
    verify(memory, pages, 1, "parent");
    printf("child of vfork: %d, ended with %#x; one that may write nothing: %#x\n", threads, status, writes_nothing);
    return 0;
}
