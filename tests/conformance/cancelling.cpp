// Cancelled threads: what lies on their stacks is destroyed, and what their calls held is given up.
#include "check.h"
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

static int ends[2];
static volatile int destroyed, cleaned;

struct Guard {
    ~Guard() { destroyed++; }
};

enum { WAYS = 6 };

static void __attribute__((noinline)) wait_in(long way, char *at) {
    iovec vector = {at, MIB};
    msghdr message = {};
    message.msg_iov = &vector, message.msg_iovlen = 1;
    Guard guard;
    switch (way) {
    case 0: read(ends[0], at, 100); break;
    case 1: read(ends[0], at, MIB); break;
    case 2: readv(ends[0], &vector, 1); break;
    case 3: recv(ends[0], at, 4096, 0); break;
    case 4: recvmsg(ends[0], &message, 0); break;
    case 5: pause(); break;
    }
}

static void clean(void *) { cleaned++; }

static void *thread(void *way) {
    char *at = (char *)mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(at, 1, MIB);
    Guard guard;
    pthread_cleanup_push(clean, NULL);
    wait_in((long)way, at);
    pthread_cleanup_pop(0);
    return NULL;
}

static volatile int went_on;

// A thread that is to be cancelled makes calls that are no cancellation points.
static void *go_on(void *epoll) {
    int *at = (int *)mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t *mask = (uint64_t *)(at + 1024);
    iovec *vector = (iovec *)(at + 2048);
    memset(at, 0, MIB);
    epoll_event *event = (epoll_event *)(at + 4096);
    event->events = EPOLLIN, vector->iov_base = at, vector->iov_len = 16;
    MUST(pthread_cancel(pthread_self()) == 0);
    went_on += ioctl(ends[0], FIONREAD, at) == 0;
    went_on += setsockopt(ends[0], SOL_SOCKET, SO_KEEPALIVE, at, sizeof *at) == 0;
    went_on += epoll_ctl((int)(long)epoll, EPOLL_CTL_ADD, ends[0], event) == 0;
    went_on += syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, mask, sizeof *mask) == 0;
    went_on += syscall(SYS_writev, ends[1], vector, 1) == 16;
    went_on += syscall(SYS_readv, ends[0], vector, 1) == 16;
    read(ends[0], at, 1);
    went_on = -1;
    return NULL;
}

int main() {
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    int cancelled = 0;
    // So many that a megabyte of each, if it stayed pinned, would fill the budget.
    for (long i = 0; i < 8 * WAYS; i++) {
        pthread_t id;
        void *result;
        MUST(pthread_create(&id, NULL, thread, (void *)(i % WAYS)) == 0);
        timespec pause = {0, 3000000};
        nanosleep(&pause, NULL);
        MUST(pthread_cancel(id) == 0 && pthread_join(id, &result) == 0);
        cancelled += result == PTHREAD_CANCELED;
    }
    SHOW(cancelled), SHOW(destroyed), SHOW(cleaned);
    pthread_t id;
    void *result;
    MUST(pthread_create(&id, NULL, go_on, (void *)(long)epoll_create1(0)) == 0 && pthread_join(id, &result) == 0);
    SHOW(went_on), SHOW(result == PTHREAD_CANCELED);
    char *all = (char *)malloc(40 * MIB);
    memset(all, 3, 40 * MIB);
    size_t bad = 0;
    for (size_t i = 0; i < 40 * MIB; i += 4096) bad += all[i] != 3;
    SHOW(bad);
    fflush(stdout);
    _exit(0);
}
