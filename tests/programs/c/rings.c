// How many io_uring descriptors this process, a child and a program that it becomes have after their memory went far and came
// back, and whether the program itself may make one. Each prints: who, 1 if there are rings, 1 if it got one of its own.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 48 << 20, STEP = 4096 };
static unsigned char *memory;

static int rings(void) {
    int found = 0;
    DIR *open_files = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(open_files));) {
        char path[300], target[100] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof target - 1) > 0) found += strstr(target, "io_uring") != NULL;
    }
    closedir(open_files);
    return found;
}

static void go_round(const char *who) {
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < BYTES; i += STEP) {
            if (memory[i] != (unsigned char)(i / STEP)) printf("%s: wrong byte\n", who), exit(1);
            memory[i + 1]++;
        }
    char parameters[120] = "";
    int library = rings() > 0, own = syscall(SYS_io_uring_setup, 4, parameters) >= 0;
    printf("%s %d %d\n", who, library, own), fflush(stdout);
}

int main(int argc, char **argv) {
    memory = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i += STEP) memory[i] = i / STEP;
    go_round(argc > 1 ? "program" : "parent");
    if (!fork()) go_round("child"), _exit(0);
    wait(NULL);
    if (argc == 1) execl("/proc/self/exe", argv[0], "again", NULL);
}
