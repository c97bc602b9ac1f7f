/* A child confines itself to seccomp's strict mode, writes and leaves by the plain exit call. */
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    if (fork() == 0) {
        if (prctl(PR_SET_SECCOMP, 1, 0, 0, 0)) _exit(3);
        ssize_t written = write(1, "confined\n", 9);
        syscall(SYS_exit, written != 9);
    }
    int status = -1;
    wait(&status);
    printf("child %#x\n", status);
    return 0;
}
