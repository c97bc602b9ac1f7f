/* Gives root up, then forks: the child must find every byte. */
#include "pattern.h"
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    uint64_t *memory = patterned(64, 1);
    if (setgid(65534) || setuid(65534)) return 77;
    pid_t pid = fork();
    if (pid == 0) {
        verify(memory, 64 * 256, 1, "child");
        _exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    verify(memory, 64 * 256, 1, "parent");
    printf("child %d\n", status);
    return 0;
}
