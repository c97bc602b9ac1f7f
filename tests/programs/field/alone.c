/* Calls that the kernel or libc makes for programs with one thread only, by a program that has one, with more memory than is local. usage:
 *   alone user | all | number      unshare(2) of the user namespace, of several, by libc's syscall
 *   alone mounts | times           setns(2) into its own mount namespace, into one of time
 *   alone groups                   keeps capabilities over setresuid(2), raises one, gives its groups up
 *   alone again                    many times, while pages leave
 *   alone threads                  with a second thread of its own, which computes
 * Each prints what the calls answer, and what a child does afterwards. */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
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
