/* A handler of a signal that a thread sends to itself by libc's `syscall`, or that it gets when libc changes its mask, walks the stack: does
 * it reach the caller of the function that did so? */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int reached;
static volatile uintptr_t sent_from;

static void walk(int signal) {
    (void)signal;
    void *frames[64];
    int count = backtrace(frames, 64);
    for (int i = 0; i < count; i++) reached |= (uintptr_t)frames[i] == sent_from;
}

__attribute__((noinline)) static void sends(void) {
    sent_from = (uintptr_t)__builtin_return_address(0);
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR2);
    __asm__ volatile("");
}

typedef int (*mask_function)(int, const sigset_t *, sigset_t *);

/* By libc's own function, whatever is put in its place. */
__attribute__((noinline)) static void unblocks(mask_function own) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sent_from = (uintptr_t)__builtin_return_address(0);
    own(SIG_BLOCK, &set, NULL);
    raise(SIGUSR2);
    own(SIG_UNBLOCK, &set, NULL);
    __asm__ volatile("");
}

int main(void) {
    void *frames[2];
    backtrace(frames, 2);
    signal(SIGUSR2, walk);
    sends();
    printf("reached %d\n", reached);
    reached = 0;
    unblocks((mask_function)dlvsym(RTLD_DEFAULT, "sigprocmask", "GLIBC_2.2.5"));
    printf("reached %d\n", reached);
    return 0;
}
