/* A process reads pages of its child, which has little memory, has not touched them, and only waits. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    const size_t bytes = 1 << 20;
    int ends[2];
    if (pipe(ends)) return 1;
    pid_t pid = fork();
    if (pid == 0) {
        char *untouched = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (write(ends[1], &untouched, sizeof untouched) != sizeof untouched) _exit(2);
        for (;;) pause();
    }
    void *theirs;
    if (read(ends[0], &theirs, sizeof theirs) != sizeof theirs) return 3;
    char *mine = malloc(bytes);
    memset(mine, 1, bytes);
    struct iovec local = {mine, bytes}, remote = {theirs, bytes};
    ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    printf("%zd %s\n", got, got < 0 ? strerror(errno) : "");
    for (ssize_t at = 0; at < got; at++)
        if (mine[at]) return puts("WRONG"), 99;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return 0;
}
