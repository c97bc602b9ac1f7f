// The system calls that few programs make, and the second pointers of the common ones: each by number, with one pointer into
// memory of every state. What only root may do is done so that nothing changes.
#include "entries.h"
#include "newer_calls.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/fanotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

static char other[4096] __attribute__((aligned(4096))); // for the pointers that an entry does not look at
#define OTHER ((long)other)
#define HERE AT_FDCWD
static int file, directory, ends[2], listener, client, peer, datagrams[2], epoll, timer, self, shared, queue, semaphore, posts;
static int marks, rules, context;
static pid_t stopped;
static struct sockaddr_un address = {.sun_family = AF_UNIX}, name = {.sun_family = AF_UNIX};
static const struct timespec zero, soon = {0, 1000}, later = {1000, 0};

static void nothing(int number) {}
static void rewind_all(void) { lseek(directory, 0, SEEK_SET), lseek(file, 0, SEEK_SET); }
static socklen_t near_room_for_name;
static void make_room_for_a_name(void) { near_room_for_name = 110; }
static void connect_one(void) {
    make_room_for_a_name();
    if (client > 0) close(client);
    client = socket(AF_UNIX, SOCK_STREAM, 0);
    bind(client, (void *)&name, sizeof(sa_family_t)); // an abstract name of the kernel's choice
    MUST(connect(client, (void *)&address, sizeof address) == 0);
}
static void make_room_for_a_handle(void) { *(int *)other = 128; } // struct file_handle: bytes that follow
static uint32_t near_size;
static void make_room_for_modules(void) { near_size = 1024; }
static void post_datagram(void) {
    make_room_for_a_name();
    while (recv(datagrams[0], other + 2048, 100, MSG_DONTWAIT) >= 0) {}
    MUST(send(datagrams[1], "a datagram", 10, 0) == 10);
}
static void post_message(void) {
    struct mq_attr state;
    char text[64];
    mq_getattr(posts, &state);
    if (!state.mq_curmsgs) MUST(mq_send(posts, "a message", 9, 3) == 0);
}
static void empty_queue(void) {
    char text[64];
    struct mq_attr state;
    while (mq_getattr(posts, &state), state.mq_curmsgs) mq_receive(posts, text, 64, NULL);
}
static void ask_for_nothing(void) { mq_notify(posts, NULL); }
// Again and again: on a busy machine the first signal may come before the call.
static void interrupt(void) { setitimer(ITIMER_REAL, &(struct itimerval){{0, 3000}, {0, 3000}}, NULL); }
static void quiet_timer(void) { setitimer(ITIMER_REAL, &(struct itimerval){}, NULL); }
static void post_signal(void) { raise(SIGUSR1); }
static void end_a_child(void) {
    if (!fork()) _exit(3);
}
static void fill_pipe(void) {
    char byte;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    while (read(ends[0], other + 2048, 1000) > 0) {}
    MUST(write(ends[1], "0123456789", 10) == 10);
}
static void empty_pipe(void) { fill_pipe(), read(ends[0], other + 2048, 1000); }

static void prepare_files(void) {
    char path[] = "/tmp/rare-XXXXXX";
    MUST(mkdtemp(path) && chdir(path) == 0);
    file = open("file", O_CREAT | O_RDWR, 0600), directory = open(".", O_RDONLY | O_DIRECTORY);
    MUST(write(file, "content of the file", 19) == 19 && symlink("file", "link") == 0 && mkdir("directory", 0700) == 0);
    syscall(SYS_setxattr, "file", "user.name", "a value", 7, 0);
    MUST(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams) == 0);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    snprintf(address.sun_path + 1, 90, "rare-%d", getpid());
    MUST(bind(listener, (void *)&address, sizeof address) == 0 && listen(listener, 8) == 0);
    MUST(bind(datagrams[1], (void *)&name, sizeof(sa_family_t)) == 0); // so that what it sends has a sender
    peer = socket(AF_UNIX, SOCK_STREAM, 0);
    MUST(connect(peer, (void *)&address, sizeof address) == 0);
    epoll = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0), self = syscall(SYS_pidfd_open, getpid(), 0);
    struct epoll_event interest = {.events = EPOLLOUT, .data.u64 = 0x1122334455667788};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &interest) == 0);
    marks = syscall(SYS_fanotify_init, FAN_REPORT_FID, 0);
    rules = syscall(SYS_landlock_create_ruleset, &(uint64_t){1}, 8, 0);
    context = syscall(SYS_fsopen, "tmpfs", 0);
}

static void prepare_rest(void) {
    shared = shmget(IPC_PRIVATE, 4096, 0600), queue = msgget(IPC_PRIVATE, 0600), semaphore = semget(IPC_PRIVATE, 2, 0600);
    struct mq_attr few = {.mq_maxmsg = 4, .mq_msgsize = 64};
    char post[40];
    snprintf(post, sizeof post, "/rare-%d", getpid());
    posts = mq_open(post, O_CREAT | O_RDWR | O_NONBLOCK, 0600, &few), mq_unlink(post);
    struct sigaction act = {.sa_handler = nothing};
    sigaction(SIGALRM, &act, NULL), sigaction(SIGUSR2, &act, NULL);
    sigset_t blocked;
    sigemptyset(&blocked), sigaddset(&blocked, SIGUSR1), sigprocmask(SIG_BLOCK, &blocked, NULL);
    stopped = fork();
    if (!stopped) ptrace(PTRACE_TRACEME), raise(SIGSTOP), _exit(0);
    int status;
    MUST(waitpid(stopped, &status, WUNTRACED) == stopped && WIFSTOPPED(status));
}

static void clear_other(void) { memset(other, 0, sizeof other); }
#define RUN(...) ({ const struct entry list_[] = {__VA_ARGS__}; run_entries(list_, sizeof list_ / sizeof *list_, clear_other); })

static void names(void) {
    const struct timeval times[2] = {{1, 2}, {3, 4}};
    const uint64_t how[3] = {O_RDONLY};
    RUN({CALL_OF(lstat, P, OTHER), TEXT("link")}, {CALL_OF(newfstatat, HERE, P, OTHER, 0), TEXT("file")},
        {CALL_OF(statx, HERE, P, 0, STATX_SIZE, OTHER), TEXT("file")}, {CALL_OF(statfs, P, OTHER), TEXT("file")},
        {CALL_OF(getdents, directory, P, 2000), .size = 2000, .kind = ANY, .before = rewind_all},
        {CALL_OF(creat, P, 0600), TEXT("directory")}, {CALL_OF(rmdir, P), TEXT("file")}, {CALL_OF(link, (long)"link", P), TEXT("file")},
        {CALL_OF(symlink, P, (long)"file"), TEXT("link")}, {CALL_OF(symlink, (long)"link", P), TEXT("file")},
        {CALL_OF(chown, P, -1, -1), TEXT("file")}, {CALL_OF(lchown, P, -1, -1), TEXT("link")}, {CALL_OF(mknod, P, S_IFIFO), TEXT("file")},
        {CALL_OF(utime, P, 0), TEXT("file")}, {CALL_OF(utime, (long)"file", P), IN(times)}, {CALL_OF(utimes, P, 0), TEXT("file")},
        {CALL_OF(utimes, (long)"file", P), IN(times)}, {CALL_OF(futimesat, HERE, P, 0), TEXT("file")},
        {CALL_OF(futimesat, HERE, (long)"file", P), IN(times)}, {CALL_OF(utimensat, HERE, P, 0, 0), TEXT("file")},
        {CALL_OF(mkdirat, HERE, P, 0700), TEXT("directory")}, {CALL_OF(mknodat, HERE, P, S_IFIFO, 0), TEXT("file")},
        {CALL_OF(fchownat, HERE, P, -1, -1, 0), TEXT("file")}, {CALL_OF(unlinkat, HERE, P, 0), TEXT("directory")},
        {CALL_OF(renameat, HERE, P, HERE, (long)"file"), TEXT("directory")}, {CALL_OF(renameat, HERE, (long)"file", HERE, P), TEXT("directory")},
        {CALL_OF(renameat2, HERE, P, HERE, (long)"file", 1), TEXT("link")}, {CALL_OF(renameat2, HERE, (long)"link", HERE, P, 1), TEXT("file")},
        {CALL_OF(linkat, HERE, P, HERE, (long)"file", 0), TEXT("link")}, {CALL_OF(linkat, HERE, (long)"link", HERE, P, 0), TEXT("file")},
        {CALL_OF(symlinkat, P, HERE, (long)"file"), TEXT("link")}, {CALL_OF(symlinkat, (long)"link", HERE, P), TEXT("file")},
        {CALL_OF(readlinkat, HERE, P, OTHER, 100), TEXT("link")}, {CALL_OF(fchmodat, HERE, P, 0600), TEXT("file")},
        {CALL_OF(fchmodat2, HERE, P, 0600, 0), TEXT("file")}, {CALL_OF(faccessat2, HERE, P, R_OK, 0), TEXT("file")},
        {CALL_OF(openat2, HERE, P, (long)how, sizeof how), TEXT("file"), .kind = FD}, {CALL_OF(open_tree, HERE, P, 0), TEXT("file"), .kind = FD},
        {CALL_OF(execveat, HERE, P, OTHER, OTHER, 0), TEXT("missing")}, {CALL_OF(chroot, P), TEXT("missing")},
        {CALL_OF(sysfs, 1, P), TEXT("proc"), .kind = ANY}, {CALL_OF(sysfs, 2, 1, P), .size = 64},
        {CALL_OF(ustat, makedev(0, 1), P), .size = 32, .kind = ANY}, {CALL_OF(cachestat, file, P, OTHER, 0), IN((uint64_t[2]){0, 4096})},
        {CALL_OF(cachestat, file, OTHER, P, 0), .size = 40, .kind = ANY},
        {CALL_OF(splice, file, P, ends[1], 0, 4, 0), IN((uint64_t){3}), .before = empty_pipe},
        {CALL_OF(splice, ends[0], 0, file, P, 4, 0), IN((uint64_t){0}), .before = fill_pipe},
        {CALL_OF(copy_file_range, file, 0, file, P, 0), IN((uint64_t){3})},
        {CALL_OF(name_to_handle_at, HERE, P, OTHER, OTHER + 1024, 0), TEXT("file"), .before = make_room_for_a_handle},
        {CALL_OF(name_to_handle_at, HERE, (long)"file", P, OTHER, 0), .in = &(int){128}, .in_size = 4, .size = 136},
        {CALL_OF(name_to_handle_at, HERE, (long)"file", OTHER, P, 0), .size = 4, .before = make_room_for_a_handle},
        {CALL_OF(file_getattr, HERE, P, OTHER, 24, 0), TEXT("file")}, {CALL_OF(file_getattr, HERE, (long)"file", P, 24, 0), .size = 24},
        {CALL_OF(file_setattr, HERE, P, OTHER, 24, 0), TEXT("missing")}, {CALL_OF(file_setattr, HERE, (long)"missing", P, 24, 0), .size = 24});
}

static void attributes(void) {
    const struct { uint64_t value; uint32_t size, flags; } arguments = {OTHER, 100, 0};
    const char user[] = "user.name";
    const long key = (long)user, path = (long)"file";
    RUN({CALL_OF(setxattr, P, key, OTHER, 5, 0), TEXT("file")}, {CALL_OF(setxattr, path, P, OTHER, 5, 0), TEXT("user.name")},
        {CALL_OF(lsetxattr, P, key, OTHER, 5, 0), TEXT("file")}, {CALL_OF(lsetxattr, path, P, OTHER, 5, 0), TEXT("user.name")},
        {CALL_OF(lsetxattr, path, key, P, 5, 0), TEXT("value")}, {CALL_OF(fsetxattr, file, P, OTHER, 5, 0), TEXT("user.name")},
        {CALL_OF(fsetxattr, file, key, P, 5, 0), TEXT("value")}, {CALL_OF(getxattr, P, key, OTHER, 100), TEXT("file")},
        {CALL_OF(getxattr, path, key, P, 100), .size = 100}, {CALL_OF(lgetxattr, P, key, OTHER, 100), TEXT("file")},
        {CALL_OF(lgetxattr, path, P, OTHER, 100), TEXT("user.name")}, {CALL_OF(lgetxattr, path, key, P, 100), .size = 100},
        {CALL_OF(fgetxattr, file, P, OTHER, 100), TEXT("user.name")}, {CALL_OF(fgetxattr, file, key, P, 100), .size = 100},
        {CALL_OF(listxattr, P, OTHER, 100), TEXT("file")}, {CALL_OF(listxattr, path, P, 100), .size = 100},
        {CALL_OF(llistxattr, P, OTHER, 100), TEXT("file")}, {CALL_OF(llistxattr, path, P, 100), .size = 100},
        {CALL_OF(flistxattr, file, P, 100), .size = 100}, {CALL_OF(removexattr, P, key), TEXT("missing")},
        {CALL_OF(removexattr, path, P), TEXT("user.missing")}, {CALL_OF(lremovexattr, P, key), TEXT("missing")},
        {CALL_OF(lremovexattr, path, P), TEXT("user.missing")}, {CALL_OF(fremovexattr, file, P), TEXT("user.missing")},
        {CALL_OF(setxattrat, HERE, P, 0, key, (long)&arguments, 16), TEXT("file")},
        {CALL_OF(setxattrat, HERE, path, 0, P, (long)&arguments, 16), TEXT("user.name")},
        {CALL_OF(setxattrat, HERE, path, 0, key, P, 16), IN(arguments)},
        {CALL_OF(getxattrat, HERE, P, 0, key, (long)&arguments, 16), TEXT("file")},
        {CALL_OF(getxattrat, HERE, path, 0, P, (long)&arguments, 16), TEXT("user.name")},
        {CALL_OF(getxattrat, HERE, path, 0, key, P, 16), IN(arguments)},
        {CALL_OF(listxattrat, HERE, P, 0, OTHER, 100), TEXT("file")}, {CALL_OF(listxattrat, HERE, path, 0, P, 100), .size = 100},
        {CALL_OF(removexattrat, HERE, P, 0, key), TEXT("missing")}, {CALL_OF(removexattrat, HERE, path, 0, P), TEXT("user.missing")});
}

static void transfers(void) {
    static struct iovec near_parts[1];
    near_parts[0] = (struct iovec){other + 1024, 9};
    const struct iovec parts[1] = {{other + 1024, 9}};
    const struct msghdr message = {.msg_iov = near_parts, .msg_iovlen = 1};
    const struct mmsghdr batch = {.msg_hdr = message};
    static struct mmsghdr near_batch;
    near_batch = batch;
    const socklen_t room_for_name = 110;
    struct sockaddr_un nobody = {.sun_family = AF_UNIX, .sun_path = "missing"};
    RUN({CALL_OF(readv, file, P, 1), IN(parts), .before = rewind_all}, {CALL_OF(writev, file, P, 1), IN(parts), .before = rewind_all},
        {CALL_OF(preadv, file, P, 1, 3, 0), IN(parts)}, {CALL_OF(pwritev, file, P, 1, 3, 0), IN(parts)},
        {CALL_OF(preadv2, file, P, 1, 3, 0, 0), IN(parts)}, {CALL_OF(pwritev2, file, P, 1, 3, 0, 0), IN(parts)},
        {CALL_OF(vmsplice, ends[1], P, 1, 0), IN(parts), .before = empty_pipe},
        {CALL_OF(process_vm_readv, getpid(), P, 1, (long)near_parts, 1, 0), IN(parts)},
        {CALL_OF(process_vm_readv, getpid(), (long)near_parts, 1, P, 1, 0), IN(parts)},
        {CALL_OF(process_vm_writev, getpid(), P, 1, (long)near_parts, 1, 0), IN(parts)},
        {CALL_OF(process_vm_writev, getpid(), (long)near_parts, 1, P, 1, 0), IN(parts)},
        {CALL_OF(process_madvise, self, P, 1, 20 /* MADV_COLD */, 0), IN((struct iovec[1]){{other, 4096}})},
        {CALL_OF(sendto, datagrams[1], P, 10, MSG_DONTWAIT, 0, 0), TEXT("some text"), .before = post_datagram},
        {CALL_OF(sendto, datagrams[1], OTHER, 10, MSG_DONTWAIT, P, sizeof nobody), IN(nobody)},
        {CALL_OF(recvfrom, datagrams[0], P, 100, MSG_DONTWAIT, 0, 0), .size = 100, .before = post_datagram},
        {CALL_OF(recvfrom, datagrams[0], OTHER, 100, MSG_DONTWAIT, P, (long)&near_room_for_name), .size = 110, .before = post_datagram},
        {CALL_OF(recvfrom, datagrams[0], OTHER, 100, MSG_DONTWAIT, OTHER + 1024, P), IN(room_for_name), .before = post_datagram},
        {CALL_OF(sendmsg, datagrams[1], P, MSG_DONTWAIT), IN(message), .before = post_datagram},
        {CALL_OF(recvmsg, datagrams[0], P, MSG_DONTWAIT), IN(message), .before = post_datagram},
        {CALL_OF(sendmmsg, datagrams[1], P, 1, MSG_DONTWAIT), IN(batch), .before = post_datagram},
        {CALL_OF(recvmmsg, datagrams[0], P, 1, MSG_DONTWAIT, 0), IN(batch), .before = post_datagram},
        {CALL_OF(recvmmsg, datagrams[0], (long)&near_batch, 1, MSG_DONTWAIT, P), IN(soon), .kind = ANY, .before = post_datagram},
        {CALL_OF(accept, listener, P, (long)&near_room_for_name), .size = 110, .kind = FD, .before = connect_one},
        {CALL_OF(accept, listener, OTHER, P), IN(room_for_name), .kind = FD, .before = connect_one},
        {CALL_OF(accept4, listener, P, (long)&near_room_for_name, SOCK_CLOEXEC), .size = 110, .kind = FD, .before = connect_one},
        {CALL_OF(accept4, listener, OTHER, P, SOCK_CLOEXEC), IN(room_for_name), .kind = FD, .before = connect_one},
        {CALL_OF(getpeername, peer, P, (long)&near_room_for_name), .size = 110, .before = make_room_for_a_name}, {CALL_OF(getpeername, peer, OTHER, P), IN(room_for_name)},
        {CALL_OF(getsockopt, datagrams[0], SOL_SOCKET, SO_TYPE, OTHER, P), IN((socklen_t){4})});
}

static void waits(void) {
    const uint64_t mask = 0, set = 1ull << ends[1];
    const struct { const void *mask; size_t size; } pair = {&mask, 8};
    struct pollfd polled = {ends[1], POLLOUT, 0};
    const struct timeval none = {0, 0};
    const struct { uint64_t value, word; uint32_t flags, reserved; } words[2] = {{7, OTHER, 2, 0}, {0, OTHER + 64, 2, 0}};
    RUN({CALL_OF(select, ends[1] + 1, 0, P, 0, 0), IN(set)}, {CALL_OF(select, ends[1] + 1, 0, 0, P, (long)&zero), IN(set)},
        {CALL_OF(select, 0, 0, 0, 0, P), IN(none)}, {CALL_OF(pselect6, ends[1] + 1, 0, P, 0, 0, 0), IN(set)},
        {CALL_OF(pselect6, ends[1] + 1, 0, 0, P, (long)&zero, 0), IN(set)}, {CALL_OF(pselect6, 0, 0, 0, 0, (long)&zero, P), IN(pair)},
        {CALL_OF(ppoll, (long)&polled, 1, 0, P, 8), IN(mask)}, {CALL_OF(epoll_pwait, epoll, OTHER, 4, 0, P, 8), IN(mask)},
        {CALL_OF(epoll_pwait2, epoll, P, 4, (long)&zero, 0, 8), .size = 48}, {CALL_OF(epoll_pwait2, epoll, OTHER, 4, P, 0, 8), IN(zero)},
        {CALL_OF(epoll_pwait2, epoll, OTHER, 4, (long)&zero, P, 8), IN(mask)},
        {CALL_OF(nanosleep, (long)&later, P), .size = 16, .kind = ANY, .before = interrupt, .after = quiet_timer},
        {CALL_OF(clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&later, P), .size = 16, .kind = ANY, .before = interrupt, .after = quiet_timer},
        {CALL_OF(wait4, -1, OTHER, 0, P), .size = 144, .kind = ANY, .before = end_a_child},
        {CALL_OF(waitid, P_ALL, 0, OTHER, WEXITED, P), .size = 144, .kind = ANY, .before = end_a_child},
        {CALL_OF(futex, OTHER, FUTEX_REQUEUE, 1, 1, P, 0), .size = 4}, {CALL_OF(futex_wake, P, ~0u, 1, 2), .size = 4},
        {CALL_OF(futex_wait, P, 7, ~0u, 2, 0, 0), .size = 4}, {CALL_OF(futex_wait, OTHER, 0, ~0u, 2, P, CLOCK_MONOTONIC), IN(soon)},
        {CALL_OF(futex_waitv, P, 1, 0, 0, 0), IN(words[0])}, {CALL_OF(futex_waitv, (long)&words[1], 1, 0, P, CLOCK_MONOTONIC), IN(soon)},
        {CALL_OF(futex_requeue, P, 0, 1, 1), IN(words)});
}

static void signals(void) {
    const struct { void *handler; long flags, restorer, mask; } ignored = {SIG_IGN};
    const siginfo_t sent = {.si_code = SI_QUEUE};
    const stack_t none = {.ss_flags = SS_DISABLE};
    const uint64_t mask = 0, one = 1ull << (SIGUSR1 - 1);
    RUN({CALL_OF(rt_sigaction, SIGUSR2, P, 0, 8), IN(ignored)}, {CALL_OF(rt_sigaction, SIGUSR2, 0, P, 8), .size = 32},
        {CALL_OF(rt_sigprocmask, SIG_BLOCK, P, 0, 8), IN(mask)}, {CALL_OF(rt_sigprocmask, SIG_BLOCK, 0, P, 8), .size = 8},
        {CALL_OF(rt_sigpending, P, 8), .size = 8}, {CALL_OF(sigaltstack, P, 0), IN(none)}, {CALL_OF(sigaltstack, 0, P), .size = 24, .kind = ANY},
        {CALL_OF(rt_sigtimedwait, P, 0, (long)&zero, 8), IN(one), .before = post_signal},
        {CALL_OF(rt_sigtimedwait, (long)&one, P, (long)&zero, 8), .size = 128, .before = post_signal},
        {CALL_OF(rt_sigtimedwait, (long)&one, 0, P, 8), IN(zero), .before = post_signal},
        {CALL_OF(rt_sigsuspend, P, 8), IN(one), .before = interrupt, .after = quiet_timer}, {CALL_OF(rt_sigqueueinfo, getpid(), 0, P), IN(sent)},
        {CALL_OF(rt_tgsigqueueinfo, getpid(), gettid(), 0, P), IN(sent)}, {CALL_OF(pidfd_send_signal, self, 0, P, 0), IN(sent)},
        {CALL_OF(signalfd, -1, P, 8), IN(one), .kind = FD}, {CALL_OF(signalfd4, -1, P, 8, 0), IN(one), .kind = FD});
}

static void queues(void) {
    const struct sigevent quiet = {.sigev_notify = SIGEV_NONE};
    const struct itimerspec setting = {{0, 0}, {1000, 0}};
    const struct sembuf raise = {0, 1, 0};
    struct mq_attr attributes = {.mq_flags = O_NONBLOCK, .mq_maxmsg = 4, .mq_msgsize = 64};
    int id;
    MUST(syscall(SYS_timer_create, CLOCK_MONOTONIC, &quiet, &id) == 0);
    RUN({CALL_OF(shmctl, shared, IPC_STAT, P), .size = 112}, {CALL_OF(msgctl, queue, IPC_STAT, P), .size = 120},
        {CALL_OF(semtimedop, semaphore, P, 1, 0), IN(raise)}, {CALL_OF(semtimedop, semaphore, (long)&raise, 1, P), IN(soon)},
        {CALL_OF(timer_create, CLOCK_MONOTONIC, P, OTHER), IN(quiet)}, {CALL_OF(timer_create, CLOCK_MONOTONIC, (long)&quiet, P), .size = 4, .kind = ANY},
        {CALL_OF(timer_settime, id, 0, (long)&setting, P), .size = 32, .kind = ANY}, {CALL_OF(timerfd_settime, timer, 0, (long)&setting, P), .size = 32, .kind = ANY},
        {CALL_OF(setitimer, ITIMER_REAL, OTHER, P), .size = 32, .before = quiet_timer}, {CALL_OF(gettimeofday, 0, P), .size = 8},
        {CALL_OF(mq_open, (long)"missing", O_CREAT | O_EXCL | O_RDONLY, 0600, P), .size = 64}, {CALL_OF(mq_unlink, P), TEXT("missing")},
        {CALL_OF(mq_timedsend, posts, P, 9, 1, 0), TEXT("a message"), .before = empty_queue},
        {CALL_OF(mq_timedsend, posts, OTHER, 9, 1, P), IN(soon), .before = empty_queue},
        {CALL_OF(mq_timedreceive, posts, P, 64, 0, 0), .size = 64, .kind = ANY, .before = post_message},
        {CALL_OF(mq_timedreceive, posts, OTHER, 64, P, 0), .size = 4, .kind = ANY, .before = post_message},
        {CALL_OF(mq_timedreceive, posts, OTHER, 64, 0, P), IN(soon), .before = post_message},
        {CALL_OF(mq_getsetattr, posts, P, 0), IN(attributes)}, {CALL_OF(mq_getsetattr, posts, 0, P), .size = 64, .kind = ANY},
        {CALL_OF(mq_notify, posts, P), IN(quiet), .before = ask_for_nothing});
}

static void processes(void) {
    const struct { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t times[3]; } plain = {48, 0, 0, getpriority(PRIO_PROCESS, 0)};
    uint64_t processors[16], nodes = 1;
    memset(processors, 0, sizeof processors);
    syscall(SYS_sched_getaffinity, 0, sizeof processors, processors);
    struct rlimit limit;
    getrlimit(RLIMIT_CORE, &limit);
    RUN({CALL_OF(getresuid, OTHER, P, OTHER), .size = 4}, {CALL_OF(getresuid, OTHER, OTHER, P), .size = 4},
        {CALL_OF(getresgid, P, OTHER, OTHER), .size = 4}, {CALL_OF(getresgid, OTHER, P, OTHER), .size = 4},
        {CALL_OF(getresgid, OTHER, OTHER, P), .size = 4}, {CALL_OF(getcpu, 0, P, 0), .size = 4, .kind = ANY},
        {CALL_OF(get_robust_list, 0, OTHER, P), .size = 8}, {CALL_OF(setrlimit, RLIMIT_CORE, P), IN(limit)},
        {CALL_OF(prlimit64, 0, RLIMIT_CORE, 0, P), .size = 16}, {CALL_OF(sched_setscheduler, 0, 0, P), .size = 4},
        {CALL_OF(sched_setattr, 0, P, 0), IN(plain)}, {CALL_OF(sched_getattr, 0, P, 48, 0), .size = 48},
        {CALL_OF(sched_setaffinity, 0, 128, P), IN(processors)}, {CALL_OF(modify_ldt, 0, P, 64), .size = 64},
        {CALL_OF(set_mempolicy, 2 /* MPOL_BIND */, P, 64), IN(nodes)}, {CALL_OF(get_mempolicy, P, OTHER, 1024, 0, 0), .size = 4},
        {CALL_OF(get_mempolicy, 0, P, 1024, 0, 0), .size = 128}, {CALL_OF(mbind, OTHER, 4096, 2, P, 64, 0), IN(nodes)},
        {CALL_OF(migrate_pages, 0, 64, P, (long)&nodes), IN(nodes)}, {CALL_OF(migrate_pages, 0, 64, (long)&nodes, P), IN(nodes)},
        {CALL_OF(move_pages, 0, 1, P, 0, OTHER, 0), IN((long){OTHER})}, {CALL_OF(move_pages, 0, 1, (long)&(long){OTHER}, P, OTHER, 0), IN((int){0})},
        {CALL_OF(move_pages, 0, 1, (long)&(long){OTHER}, 0, P, 0), .size = 4}, {CALL_OF(ptrace, 0x4202 /* PTRACE_GETSIGINFO */, stopped, 0, P), .size = 128},
        {CALL_OF(ptrace, 0x4204 /* PTRACE_GETREGSET */, stopped, 1, P), IN((struct iovec){other, 512})},
        {CALL_OF(seccomp, 2 /* SECCOMP_GET_ACTION_AVAIL */, 0, P), IN((uint32_t){0x7fff0000})},
        {CALL_OF(adjtimex, P), .size = 208, .kind = ANY}, {CALL_OF(clock_adjtime, CLOCK_REALTIME, P), .size = 208, .kind = ANY});
}

// What privileges decide. With them: the same name, groups and capabilities again; what is missing; what is invalid.
static void privileges(void) {
    char host[65] = "", domain[65] = "";
    gethostname(host, sizeof host), getdomainname(domain, sizeof domain);
    gid_t groups[64];
    int count = getgroups(64, groups);
    uint32_t header[2] = {0x20080522, 0}, capabilities[6];
    MUST(syscall(SYS_capget, header, capabilities) == 0);
    const struct timespec invalid = {0, 2000000000};
    const struct timeval invalid_too = {0, 2000000};
    const struct { uint32_t type, size; uint64_t config[15]; } event = {1 /* software */, 128, {9 /* dummy */}};
    const uint32_t map[18] = {2 /* array */, 4, 8, 1};
    const struct { uint64_t access; int32_t parent; } __attribute__((packed)) beneath = {1, directory};
    RUN({CALL_OF(capget, (long)header, P), .size = 24, .kind = PRIVATE}, {CALL_OF(capset, P, (long)capabilities), IN(header), .kind = PRIVATE},
        {CALL_OF(capset, (long)header, P), IN(capabilities), .kind = PRIVATE}, {CALL_OF(setgroups, count, P), IN(groups), .kind = PRIVATE},
        {CALL_OF(sethostname, P, strlen(host)), IN(host), .kind = PRIVATE}, {CALL_OF(setdomainname, P, strlen(domain)), IN(domain), .kind = PRIVATE},
        {CALL_OF(settimeofday, P, 0), IN(invalid_too), .kind = PRIVATE}, {CALL_OF(clock_settime, CLOCK_REALTIME, P), IN(invalid), .kind = PRIVATE},
        {CALL_OF(pivot_root, P, (long)"missing"), TEXT("missing"), .kind = PRIVATE}, {CALL_OF(pivot_root, (long)".", P), TEXT("missing"), .kind = PRIVATE},
        {CALL_OF(acct, P), TEXT("missing"), .kind = PRIVATE}, {CALL_OF(swapon, P, 0), TEXT("missing"), .kind = PRIVATE},
        {CALL_OF(swapoff, P), TEXT("missing"), .kind = PRIVATE}, {CALL_OF(umount2, P, 0), TEXT("missing"), .kind = PRIVATE},
        {CALL_OF(mount, P, (long)"missing", (long)"tmpfs", 0, 0), TEXT("source"), .kind = PRIVATE},
        {CALL_OF(mount, (long)"source", P, (long)"tmpfs", 0, 0), TEXT("missing"), .kind = PRIVATE},
        {CALL_OF(mount, (long)"source", (long)"missing", P, 0, 0), TEXT("tmpfs"), .kind = PRIVATE},
        {CALL_OF(mount, (long)"source", (long)"missing", (long)"tmpfs", 0, P), TEXT("size=1m"), .kind = PRIVATE},
        {CALL_OF(syslog, 3, P, 200), .size = 200, .kind = PRIVATE}, {CALL_OF(init_module, P, 16, (long)""), .size = 16, .kind = PRIVATE},
        {CALL_OF(delete_module, P, O_NONBLOCK), TEXT("no_such_module"), .kind = PRIVATE},
        {CALL_OF(finit_module, file, P, 0), TEXT("parameter=1"), .kind = PRIVATE},
        {CALL_OF(quotactl, 0x80000400, P, 0, OTHER), TEXT("missing"), .kind = PRIVATE},
        {CALL_OF(perf_event_open, P, 0, -1, -1, 0), IN(event), .kind = PRIVATE}, {CALL_OF(bpf, 0, P, sizeof map), IN(map), .kind = PRIVATE},
        {CALL_OF(fanotify_mark, marks, FAN_MARK_ADD, FAN_OPEN, HERE, P), TEXT("file"), .kind = PRIVATE},
        {CALL_OF(open_by_handle_at, directory, P, O_RDONLY), IN((uint32_t[4]){8, 1, 2, 0}), .kind = PRIVATE},
        {CALL_OF(fsopen, P, 0), TEXT("no such type"), .kind = PRIVATE}, {CALL_OF(fspick, HERE, P, 0), TEXT("missing"), .kind = PRIVATE},
        {CALL_OF(fsconfig, context, 1, P, (long)"a source", 0), TEXT("no such key"), .kind = PRIVATE},
        {CALL_OF(fsconfig, context, 1, (long)"no such key", P, 0), TEXT("a source"), .kind = PRIVATE},
        {CALL_OF(move_mount, HERE, P, HERE, (long)"file", 0), TEXT("missing"), .kind = PRIVATE},
        {CALL_OF(move_mount, HERE, (long)"missing", HERE, P, 0), TEXT("missing"), .kind = PRIVATE},
        {CALL_OF(mount_setattr, HERE, P, 0, (long)(uint64_t[4]){1}, 32), TEXT("missing"), .kind = PRIVATE},
        {CALL_OF(mount_setattr, HERE, (long)"missing", 0, P, 32), IN((uint64_t[4]){1}), .kind = PRIVATE},
        {CALL_OF(open_tree_attr, HERE, P, 0, (long)(uint64_t[4]){1}, 32), TEXT("missing"), .kind = PRIVATE},
        {CALL_OF(open_tree_attr, HERE, (long)"missing", 0, P, 32), IN((uint64_t[4]){1}), .kind = PRIVATE},
        {CALL_OF(landlock_create_ruleset, P, 8, 0), IN((uint64_t){1}), .kind = FD},
        {CALL_OF(landlock_add_rule, rules, 1, P, 0), IN(beneath)});
}

static void keys_and_mounts(void) {
    const long user = (long)"user", key = (long)"rare";
    struct { uint8_t before[144]; uint64_t mount; uint8_t after[104]; } about = {};
    syscall(SYS_statx, HERE, ".", 0, 0x4000 /* STATX_MNT_ID_UNIQUE */, &about);
    const struct { uint32_t size, spare; uint64_t mount, parameter; } one = {24, 0, about.mount, 2 /* STATMOUNT_MNT_BASIC */},
                                                                     root = {24, 0, ~0ull, 0};
    RUN({CALL_OF(add_key, user, P, OTHER, 4, -1), TEXT("rare"), .kind = PRIVATE}, {CALL_OF(add_key, user, key, P, 4, -1), TEXT("key"), .kind = PRIVATE},
        {CALL_OF(request_key, P, key, 0, 0), TEXT("no such type"), .kind = PRIVATE}, {CALL_OF(request_key, user, P, 0, 0), TEXT("no such key"), .kind = PRIVATE},
        {CALL_OF(request_key, (long)"no such type", key, P, 0), TEXT("a call"), .kind = PRIVATE},
        {CALL_OF(keyctl, 1 /* JOIN_SESSION_KEYRING */, P), TEXT("rare"), .kind = PRIVATE},
        {CALL_OF(keyctl, 6 /* DESCRIBE */, -3, P, 100), .size = 100, .kind = PRIVATE},
        {CALL_OF(keyctl, 10 /* SEARCH */, -3, user, P, 0), TEXT("no such key"), .kind = PRIVATE},
        {CALL_OF(statmount, P, OTHER, 1024, 0), IN(one), .kind = PRIVATE}, {CALL_OF(statmount, (long)&one, P, 1024, 0), .size = 1024, .kind = PRIVATE},
        {CALL_OF(listmount, P, OTHER, 16, 0), IN(root), .kind = PRIVATE}, {CALL_OF(listmount, (long)&root, P, 16, 0), .size = 128, .kind = PRIVATE},
        {CALL_OF(lsm_get_self_attr, 100, P, (long)&near_size, 0), .size = 1024, .kind = PRIVATE, .before = make_room_for_modules},
        {CALL_OF(lsm_get_self_attr, 100, OTHER, P, 0), IN((uint32_t){1024}), .kind = PRIVATE},
        {CALL_OF(lsm_set_self_attr, 100, P, 40, 0), .size = 40, .kind = PRIVATE},
        {CALL_OF(lsm_list_modules, P, (long)&near_size, 0), .size = 1024, .kind = PRIVATE, .before = make_room_for_modules},
        {CALL_OF(lsm_list_modules, OTHER, P, 0), IN((uint32_t){1024}), .kind = PRIVATE});
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    prepare_files(), prepare_rest();
    names(), attributes(), transfers(), waits(), signals(), queues(), processes(), privileges(), keys_and_mounts();
    kill(stopped, SIGKILL), waitpid(stopped, NULL, 0);
    shmctl(shared, IPC_RMID, 0), msgctl(queue, IPC_RMID, 0), semctl(semaphore, 0, IPC_RMID);
    unlink("file"), unlink("link"), rmdir("directory");
    char path[200];
    MUST(getcwd(path, sizeof path) && rmdir(path) == 0);
}
