/* Reads the action of a signal that libc has installed, and installs one like it by the system call: with its code for the return. */
#define _GNU_SOURCE
#include "kernel_action.h"
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int handled;
static void handler(int signal) { handled += signal; }

int main(void) {
    struct sigaction by_libc = {.sa_handler = handler};
    sigaction(SIGUSR1, &by_libc, NULL);
    sigaction(SIGUSR1, NULL, &by_libc);
    printf("code for the return %d, flags %#x\n", by_libc.sa_restorer != NULL, by_libc.sa_flags);
    fflush(stdout);
    struct action own = {handler, by_libc.sa_flags, by_libc.sa_restorer, 0};
    printf("installed %ld\n", syscall(SYS_rt_sigaction, SIGUSR2, &own, 0, 8));
    raise(SIGUSR2);
    printf("handled %d\n", handled);
    return 0;
}
