// Calls that wait while their memory is evicted, are interrupted, restarted, left by a jump or a cancellation; and programs
// that are started with far arguments.
#include "far.h"
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;
static int ends[2];
static pthread_t sleeper;
static volatile int caught;

static void nap(int milliseconds) { nanosleep(&(struct timespec){0, milliseconds * 1000000l}, NULL); }

// While the main thread waits in a call: evicts everything that can be evicted, then lets it go on.
static void *evict_and_write(void *text) {
    nap(30), chill(), chill();
    MUST(write(ends[1], text, strlen(text)) == (ssize_t)strlen(text));
    return NULL;
}

static void evict_meanwhile(const char *text) { pthread_create(&sleeper, NULL, evict_and_write, (void *)text); }

static void evicted_while_waiting(void) {
    char *at = room(COLD, 4096);
    memset(at, 'x', 4096);
    evict_meanwhile("one"), SHOW(read(ends[0], at, 4096)), pthread_join(sleeper, NULL);
    printf("%.4s\n", at);
    evict_meanwhile("two"), SHOW(syscall(SYS_read, ends[0], at, 4096)), pthread_join(sleeper, NULL);
    printf("%.4s\n", at);
    struct iovec *parts = (struct iovec *)(at + 1024);
    parts[0] = (struct iovec){at, 2}, parts[1] = (struct iovec){at + 8, 100};
    evict_meanwhile("three"), SHOW(readv(ends[0], parts, 2)), pthread_join(sleeper, NULL);
    printf("%.2s %.3s\n", at, at + 8);
    struct pollfd *polled = (struct pollfd *)at;
    *polled = (struct pollfd){ends[0], POLLIN, 0};
    evict_meanwhile("four"), SHOW(poll(polled, 1, -1)), pthread_join(sleeper, NULL), SHOW(polled->revents);
    polled->revents = 0;
    sigset_t *mask = (sigset_t *)(at + 512);
    sigfillset(mask);
    SHOW(ppoll(polled, 1, NULL, mask)), SHOW(polled->revents), SHOW(read(ends[0], at, 4096));
    fd_set *set = (fd_set *)at;
    FD_ZERO(set);
    FD_SET(ends[0], set);
    evict_meanwhile("five"), SHOW(select(ends[0] + 1, set, NULL, NULL, NULL)), pthread_join(sleeper, NULL);
    SHOW(FD_ISSET(ends[0], set)), SHOW(read(ends[0], at, 4096));
    int epoll = epoll_create1(0);
    struct epoll_event *events = (struct epoll_event *)at;
    *events = (struct epoll_event){.events = EPOLLIN, .data.u32 = 77};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], events) == 0);
    memset(at, 0, 4096);
    evict_meanwhile("six"), SHOW(epoll_wait(epoll, events, 300, -1)), pthread_join(sleeper, NULL), SHOW(events->data.u32);
    SHOW(read(ends[0], at, 4096));
    pid_t child = fork();
    if (!child) nap(100), _exit(7);
    int *status = (int *)at;
    *status = -1, chill();
    SHOW(waitpid(child, status, 0) == child), SHOW(WEXITSTATUS(*status));
}

static void *wake(void *word) {
    nap(30), chill();
    *(int *)word = 1;
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
    return NULL;
}

static void futexes(void) {
    int *word = room(COLD, 4096);
    *word = 0;
    pthread_create(&sleeper, NULL, wake, word);
    while (*(volatile int *)word == 0) syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0);
    pthread_join(sleeper, NULL), SHOW(*word);
    pthread_mutex_t *mutex = (pthread_mutex_t *)(word + 64);
    pthread_mutex_init(mutex, NULL), pthread_mutex_lock(mutex);
    struct timespec *limit = (struct timespec *)(word + 256);
    *limit = (struct timespec){1, 0}, chill(), SHOW(pthread_mutex_timedlock(mutex, limit) == ETIMEDOUT);
    SHOW(pthread_mutex_unlock(mutex));
}

static void on_alarm(int number) { caught++; }
static sigjmp_buf out;
static void on_jump(int number) { siglongjmp(out, 1); }

static void alarm_with(void (*handler)(int), int flags) { // before the other thread writes
    struct sigaction act = {.sa_handler = handler, .sa_flags = flags};
    sigaction(SIGALRM, &act, NULL);
    struct itimerval soon = {{0, 0}, {0, 10000}};
    setitimer(ITIMER_REAL, &soon, NULL);
}

static void interruptions(void) {
    char *at = room(COLD, 4096);
    memset(at, 0, 4096);
    alarm_with(on_alarm, 0), CALL(read(ends[0], at, 100)), SHOW(caught);
    alarm_with(on_alarm, 0), CALL(syscall(SYS_read, ends[0], at, 100)), SHOW(caught);
    evict_meanwhile("restarted"), alarm_with(on_alarm, SA_RESTART);
    SHOW(read(ends[0], at, 100)), pthread_join(sleeper, NULL), SHOW(caught);
    int jumps = 0;
    // Each one leaves a call by a jump: what it held is given up, or this would end in a full budget.
    for (volatile int i = 0; i < 60; i++) {
        char *large = map_pages(MIB, PROT_READ | PROT_WRITE);
        memset(large, 1, MIB);
        if (sigsetjmp(out, 1)) jumps++;
        else {
            struct sigaction act = {.sa_handler = on_jump};
            sigaction(SIGALRM, &act, NULL);
            setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 3000}}, NULL);
            if (i % 2) read(ends[0], large, MIB);
            else syscall(SYS_read, ends[0], large, MIB);
        }
    }
    SHOW(jumps), chill();
    SHOW(write(ends[1], "still works", 11)), SHOW(read(ends[0], at, 100)), printf("%s\n", at);
}

static void *reads(void *at) {
    read(ends[0], at, 100);
    return NULL;
}

static void cancellation(void) {
    char *at = room(COLD, 4096);
    void *result;
    memset(at, 1, 4096), chill();
    pthread_create(&sleeper, NULL, reads, at), nap(50);
    SHOW(pthread_cancel(sleeper)), SHOW(pthread_join(sleeper, &result)), SHOW(result == PTHREAD_CANCELED);
}

// The list, its texts and the path are all far, and cold.
static char **far_arguments(void) {
    static const char *const words[] = {"/bin/sh", "-c", "echo $0 $# ${#1} ${#FAR}", "zero", "one", "two", NULL};
    char **list = room(COLD, 16 * sizeof *list), *texts = (char *)list + 8192;
    for (int i = 0; i < 7; i++) {
        list[i] = words[i] ? strcpy(texts, words[i]) : NULL;
        if (i == 4) memset(texts, 'a', 70000), texts[70000] = 0, texts += 70000; // longer than most pages
        else texts += 3000;
    }
    return list;
}

static void programs(void) {
    int status;
    char **list = far_arguments();
    char **environment = list + 8;
    environment[0] = (char *)list + 4096, environment[1] = NULL;
    memset(environment[0], 'b', 3000), memcpy(environment[0], "FAR=", 4), environment[0][3000] = 0;
    fflush(stdout);
    for (int way = 0; way < 3; way++) {
        pid_t child;
        chill();
        if (way == 2) MUST(posix_spawn(&child, list[0], NULL, NULL, list, environment) == 0);
        else if (!(child = way ? vfork() : fork())) execve(list[0], list, environment), _exit(127);
        SHOW(waitpid(child, &status, 0) == child), SHOW(status);
    }
    chill(), CALL(execve(list[4], list, environment)), CALL(execve("/bin/true", (char **)8, environment));
    list[5] = (char *)8, CALL(execve("/bin/true", list, environment));
    list[5] = NULL, memset(list[4], 'c', 140000), CALL(execve("/bin/true", list, environment));
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    evicted_while_waiting();
    futexes();
    interruptions();
    cancellation();
    programs();
}
