/* No descriptor is free, and the process forks: its child lives, and a child of that one, with all their memory. `full_table WAY`: how
 * the limit on descriptors is set. */
#define _GNU_SOURCE
#include "pattern.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEBIBYTES = 40 };

static uint64_t *memory;

/* Forks `deep` processes, one below the other; each finds the memory as it was. */
static int descend(int deep) {
    verify(memory, MEBIBYTES * 256, 1, "before");
    if (deep == 0) return 7;
    pid_t child = fork();
    if (child < 0) return 97;
    if (child == 0) _exit(descend(deep - 1));
    int status = -1;
    if (waitpid(child, &status, 0) != child) return 96;
    verify(memory, MEBIBYTES * 256, 1, "after");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 95;
}

static void show(const char *when) {
    struct rlimit now, again;
    if (getrlimit(RLIMIT_NOFILE, &now) || prlimit(0, RLIMIT_NOFILE, NULL, &again)) _exit(94);
    printf("%s: %ld %ld, %ld %ld\n", when, (long)now.rlim_cur, (long)now.rlim_max, (long)again.rlim_cur, (long)again.rlim_max);
    fflush(stdout);
}

int main(int count, char **words) {
    if (count < 2) return 98;
    const char *way = words[1];
    memory = patterned(MEBIBYTES, 1);
    struct rlimit limit = {64, 64};
    if (!strcmp(way, "none")) limit = (struct rlimit){0, 0};
    if (!strcmp(way, "soft") || !strcmp(way, "full")) {
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = strcmp(way, "soft") ? 1024 : 100;
    }
    if (setrlimit(RLIMIT_NOFILE, &limit)) return 93;
    if (!strcmp(way, "twice") && (setrlimit(RLIMIT_NOFILE, &limit) || setrlimit(RLIMIT_NOFILE, &(struct rlimit){32, 32}))) return 92;
    int opened = 0;
    while (open("/dev/null", O_RDONLY) >= 0) opened++;
    if (errno != EMFILE) return 91;
    /* Under a limit as high as the numbers of the library's own descriptors, those are not the program's. */
    if (strcmp(way, "full")) {
        printf("opened %d\n", opened);
        show("limit");
    }
    printf("the last said %d\n", descend(3));
    if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){limit.rlim_max + 1, limit.rlim_max}) == 0 || errno != EINVAL) return 90;
    return 0;
}
