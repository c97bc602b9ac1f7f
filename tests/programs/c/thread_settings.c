/* Settings of a thread's that take away what others of the library need, and what becomes of memory afterwards.
 * usage: thread_settings clock|dispatch|processes */
#define _GNU_SOURCE
#include "pattern.h"
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

static const uint64_t mebibytes = 64;

int main(int count, char **words) {
    if (count < 2) return 98;
    uint64_t *memory = mmap(NULL, mebibytes << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(memory, mebibytes * 256, 1);
    static char selector;
    int answer = -1;
    if (!strcmp(words[1], "clock")) answer = prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
    /* Calls from outside of a range, and, from Linux 6.17 on, calls from inside of one. */
    if (!strcmp(words[1], "dispatch"))
        answer = prctl(PR_SET_SYSCALL_USER_DISPATCH, 2, 4096, 1ul << 46, &selector) ? prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &selector) : 0;
    /* From here on the process can start no thread; the second call is one for a process with one thread. */
    if (!strcmp(words[1], "processes")) answer = unshare(CLONE_NEWPID) ? -2 : unshare(CLONE_NEWUSER);
    int error = answer ? errno : 0;
    verify(memory, mebibytes * 256, 1, words[1]);
    printf("%s %d\n", words[1], error);
    return 0;
}
