/* Ways to make a child while most memory is far.
 * usage: children fork|fork-exec|vfork|posix_spawn|system|popen|forks */
#define _GNU_SOURCE
#include "pattern.h"
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const uint64_t MEBIBYTES = 64;

static int waited(pid_t pid) {
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The child reads all, changes all, reads again; the parent does the same meanwhile: neither may see the other. */
static int live_on(uint64_t *memory) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        verify(memory, MEBIBYTES * 256, 1, "child");
        fill(memory, MEBIBYTES * 256, 2);
        verify(memory, MEBIBYTES * 256, 2, "child after its writes");
        puts("child ok");
        fflush(stdout);
        _exit(0);
    }
    fill(memory, MEBIBYTES * 256, 3);
    verify(memory, MEBIBYTES * 256, 3, "parent");
    int code = waited(pid);
    verify(memory, MEBIBYTES * 256, 3, "parent after the child");
    return code;
}

static int fork_exec(char **words) {
    pid_t pid = fork();
    if (pid == 0) {
        execvp(words[0], words);
        _exit(97);
    }
    return waited(pid);
}

static int vfork_exec(char **words) {
    pid_t pid = vfork();
    if (pid == 0) {
        execvp(words[0], words);
        _exit(97);
    }
    return waited(pid);
}

static int spawned(char **words) {
    pid_t pid;
    return posix_spawnp(&pid, words[0], NULL, NULL, words, environ) ? -1 : waited(pid);
}

static int piped(void) {
    char line[64] = "";
    FILE *pipe = popen("echo from the child", "r");
    if (!pipe || !fgets(line, sizeof line, pipe)) return -1;
    printf("%s", line);
    return pclose(pipe);
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    uint64_t *memory = patterned(MEBIBYTES, 1);
    /* The words of the command line are on the heap, and far by the time that they are used. */
    char **words = malloc(4 * sizeof *words);
    words[0] = strdup("sh"), words[1] = strdup("-c"), words[2] = strdup("echo from the child"), words[3] = NULL;
    verify(memory, MEBIBYTES * 256, 1, "before");
    int code = -1;
    if (!strcmp(way, "fork")) {
        code = live_on(memory);
        if (code) printf("child ended with %d\n", code);
        return code;
    }
    fflush(stdout);
    if (!strcmp(way, "fork-exec")) code = fork_exec(words);
    if (!strcmp(way, "vfork")) code = vfork_exec(words);
    if (!strcmp(way, "posix_spawn")) code = spawned(words);
    if (!strcmp(way, "system")) code = system(words[2]);
    if (!strcmp(way, "popen")) code = piped();
    if (!strcmp(way, "forks"))
        for (int i = code = 0; i < 50; i++) code |= fork_exec(words);
    verify(memory, MEBIBYTES * 256, 1, "after");
    printf("parent ok, child %d\n", code);
    return code;
}
