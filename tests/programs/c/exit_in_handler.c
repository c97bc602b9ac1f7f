/* Children that call _exit in a signal handler, at any point of libc's own allocations; none may hang. */
#include "pattern.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int signal) {
    (void)signal;
    _exit(0);
}

int main(void) {
    uint64_t *memory = patterned(64, 1);
    for (int child = 0; child < 100; child++) {
        pid_t pid = fork();
        if (pid == 0) {
            signal(SIGALRM, leave);
            ualarm(1500 + child * 37, 0);
            for (;;) {
                FILE *file = fopen("/dev/null", "r");
                getc(file);
                fclose(file);
            }
        }
        int status = 0, tries = 0;
        while (waitpid(pid, &status, WNOHANG) == 0) {
            usleep(1000);
            if (++tries == 20000) {
                kill(pid, SIGKILL);
                printf("child %d hangs\n", child);
                return 1;
            }
        }
    }
    verify(memory, 64 * 256, 1, "parent");
    puts("all left");
    return 0;
}
