/* Calls that the kernel or libc makes for programs with one thread only, by a program that has one, with more memory than is local. usage:
 *   alone user | all | number      unshare(2) of the user namespace, of several, by libc's syscall
 *   alone mounts | users | times   setns(2) into its own mount namespace, into one of users that a child has, into one of time
 *   alone groups                   keeps capabilities over setresuid(2), raises one, gives its groups up
 *   alone rights                   gives up its rights, and looks for threads that have kept them
 *   alone exec                     makes a namespace, then becomes another program with memory of its own
 *   alone confined                 under a filter of system calls, which allows all
 *   alone again                    many times, while pages leave
 *   alone threads                  with a second thread of its own, which computes
 * Each prints what the calls answer, and what a child does afterwards. */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t pages = 32 * 256;
static uint64_t *memory;
static uint64_t version = 1;

static void say(const char *what, long answer) { printf("%s %ld %s\n", what, answer, answer < 0 ? strerror(errno) : ""); }

/* All pages are as they were, here and in a child, which changes its own. */
static void go_on(void) {
    verify(memory, pages, version, "after it");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        verify(memory, pages, version, "child");
        fill(memory, pages, 77);
        verify(memory, pages, 77, "child's own");
        printf("child is %s\n", getpid() == 1 ? "the first" : "one of many");
        fflush(stdout);
        _exit(0);
    }
    int status = -1;
    if (child > 0) waitpid(child, &status, 0);
    printf("child %d %#x\n", child > 0, status);
    say("others", waitpid(-1, NULL, __WALL | WNOHANG));
    fill(memory, pages, ++version);
    verify(memory, pages, version, "written anew");
}

static void enter(const char *of, int kind) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/ns/%s", of);
    int descriptor = open(path, O_RDONLY);
    say(of, setns(descriptor, kind));
    close(descriptor);
}

/* A child has a user namespace, as long as it reads. */
static void enter_of_child(void) {
    int up[2], down[2];
    char byte = 0, path[64];
    if (pipe(up) || pipe(down)) return;
    pid_t child = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        close(down[1]);
        _exit(write(up[1], &byte, 1) != 1 || read(down[0], &byte, 1) != 0);
    }
    close(down[0]);
    if (read(up[0], &byte, 1) != 1) return;
    snprintf(path, sizeof path, "/proc/%d/ns/user", child);
    int descriptor = open(path, O_RDONLY);
    say("users", setns(descriptor, CLONE_NEWUSER));
    close(descriptor);
    close(down[1]);
    waitpid(child, NULL, 0);
}

/* Threads with a user of root's, or with rights. */
static void rights(void) {
    say("user", setresuid(65534, 65534, 65534));
    prctl(PR_SET_DUMPABLE, 1);
    DIR *threads = opendir("/proc/self/task");
    int roots = 0, able = 0;
    for (struct dirent *entry; threads && (entry = readdir(threads));) {
        char path[300], line[200];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *status = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        while (status && fgets(line, sizeof line, status)) {
            roots += !strncmp(line, "Uid:", 4) && (strstr(line, "\t0\t") || strstr(line, "\t0\n"));
            able += !strncmp(line, "CapEff:", 7) && strspn(line + 8, "0") != 16;
        }
        if (status) fclose(status);
    }
    if (threads) closedir(threads);
    printf("%s: roots %d, able %d\n", threads ? "looked" : "no look", roots, able);
}

static void confine(void) {
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {1, &allow};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    say("confined", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
}

static void groups(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct rights[2] = {{0}};
    say("keepcaps", prctl(PR_SET_KEEPCAPS, 1));
    say("user", setresuid(65534, 65534, 65534));
    rights[0].effective = rights[0].permitted = 1 << CAP_SETGID;
    say("capset", syscall(SYS_capset, &header, rights));
    gid_t *list = (gid_t *)memory, first = list[0];
    list[0] = 65534;
    say("groups", setgroups(1, list));
    list[0] = first;
    say("how many", getgroups(0, NULL));
    say("group", setresgid(65534, 65534, 65534));
    rights[0].effective = rights[0].permitted = 0;
    say("capset", syscall(SYS_capset, &header, rights));
    say("groups", setgroups(0, NULL));
}

static void *compute(void *stop) {
    uint64_t sum = 0;
    while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED))
        for (uint64_t page = 0; page < pages; page++) sum += memory[page * PAGE_WORDS];
    return (void *)(sum | 1);
}

int main(int count, char **words) {
    if (count < 2) return 98;
    const char *what = words[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    memory = patterned(pages / 256, version);
    if (!strcmp(what, "user")) say("unshare", unshare(CLONE_NEWUSER));
    if (!strcmp(what, "all")) say("unshare", unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS));
    if (!strcmp(what, "number")) say("unshare", syscall(SYS_unshare, CLONE_NEWUSER | CLONE_NEWNS));
    if (!strcmp(what, "mounts")) enter("mnt", CLONE_NEWNS), enter("mnt", 0), enter("mnt", CLONE_NEWUTS);
    if (!strcmp(what, "times")) {
        say("unshare", unshare(0x80));
        enter("time_for_children", 0x80);
    }
    if (!strcmp(what, "groups")) groups();
    if (!strcmp(what, "users")) enter_of_child();
    if (!strcmp(what, "rights")) rights();
    if (!strcmp(what, "confined")) confine();
    if (!strcmp(what, "exec") || !strcmp(what, "confined")) say("unshare", unshare(CLONE_NEWUSER));
    if (!strcmp(what, "exec")) execl("/proc/self/exe", words[0], "became", NULL);
    if (!strcmp(what, "again")) {
        long answers = 0;
        for (int i = 0; i < 40; i++) {
            answers += unshare(CLONE_THREAD | CLONE_SIGHAND);
            uint64_t at = (uint64_t)i * 211 % (pages - 512);
            for (uint64_t page = at; page < at + 512; page++)
                if (memory[page * PAGE_WORDS + 7] != pattern_word(page, 7, version)) puts("WRONG");
        }
        say("answers", answers);
    }
    if (!strcmp(what, "threads")) {
        int stop = 0;
        void *sum;
        pthread_t other;
        pthread_create(&other, NULL, compute, &stop);
        say("unshare", unshare(CLONE_NEWUSER));
        say("threads", unshare(CLONE_THREAD));
        say("user", setresuid(65534, 65534, 65534));
        __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
        pthread_join(other, &sum);
        printf("joined %d\n", sum != NULL);
    }
    go_on();
    return 0;
}
