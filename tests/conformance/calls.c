// System calls with one pointer each, by number: every state of the memory behind the pointer gives the same answer and the
// same bytes; bad pointers give the same errors.
#include "entries.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>

static int file, full_pipe[2], sockets[2], epoll, timer, event, queue, semaphore, directory;
static long posix_timer;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int one = 1;

static void prepare(void) {
    char name[] = "/tmp/calls-XXXXXX";
    MUST(mkdtemp(name) && chdir(name) == 0);
    file = open("file", O_CREAT | O_RDWR, 0600);
    MUST(write(file, "content of the file", 19) == 19 && symlink("file", "link") == 0);
    MUST(mkdir("directory", 0700) == 0);
    directory = open(".", O_RDONLY | O_DIRECTORY);
    MUST(pipe(full_pipe) == 0 && write(full_pipe[1], "0123456789abcdef", 16) == 16);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    epoll = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0), event = eventfd(1000, EFD_SEMAPHORE);
    struct epoll_event interest = {.events = EPOLLIN, .data.u64 = 0x1122334455667788};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, full_pipe[0], &interest) == 0);
    queue = msgget(IPC_PRIVATE, 0600), semaphore = semget(IPC_PRIVATE, 2, 0600);
    MUST(queue >= 0 && semaphore >= 0);
    struct sigevent quiet = {.sigev_notify = SIGEV_NONE};
    int id;
    MUST(syscall(SYS_timer_create, CLOCK_MONOTONIC, &quiet, &id) == 0);
    posix_timer = id;
    snprintf(address.sun_path + 1, 90, "calls-%d", getpid());
}

static const struct timespec soon = {0, 1000};
static void rewind_directory(void) { lseek(directory, 0, SEEK_SET); }

static void unchanged(void) {}
static void run_all(void) {
    struct pollfd polled = {full_pipe[0], POLLIN, 0};
    struct itimerspec setting = {{0, 0}, {1000, 0}};
    struct epoll_event changed = {.events = EPOLLIN, .data.u64 = 0x1122334455667788};
    struct sembuf raise = {0, 1, 0};
    struct { long type; char text[24]; } message = {1, "text of a message"};
    struct open_how how = {.flags = O_RDONLY};
    struct flock lock = {.l_type = F_WRLCK};
    struct rlimit limit;
    getrlimit(RLIMIT_CORE, &limit);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(full_pipe[0], &set);
    uint64_t count = 5, offset = 3;
    socklen_t room_for_name = 110;
    const struct entry entries[] = {
        {CALL_OF(stat, (long)"file", P), .size = 144}, {CALL_OF(stat, P, (long)near_room + 8192), TEXT("file")},
        {CALL_OF(fstat, file, P), .size = 144}, {CALL_OF(lstat, (long)"link", P), .size = 144},
        {CALL_OF(newfstatat, AT_FDCWD, (long)"file", P, 0), .size = 144},
        {CALL_OF(statx, AT_FDCWD, (long)"file", 0, STATX_SIZE | STATX_MODE, P), .size = 256},
        {CALL_OF(statfs, (long)".", P), .size = 120, .kind = ANY}, {CALL_OF(fstatfs, file, P), .size = 120, .kind = ANY},
        {CALL_OF(open, P, O_RDONLY), TEXT("file"), .kind = FD}, {CALL_OF(open, P, O_RDONLY), TEXT("missing")},
        {CALL_OF(openat, directory, P, O_RDONLY), TEXT("file"), .kind = FD},
        {CALL_OF(openat2, directory, (long)"file", P, sizeof how), IN(how), .kind = FD},
        {CALL_OF(access, P, R_OK), TEXT("file")}, {CALL_OF(faccessat, directory, P, R_OK), TEXT("file")},
        {CALL_OF(readlink, (long)"link", P, 100), .size = 100}, {CALL_OF(readlink, P, (long)near_room + 8192, 100), TEXT("link")},
        {CALL_OF(readlinkat, directory, (long)"link", P, 100), .size = 100}, {CALL_OF(getcwd, P, 200), .size = 200},
        {CALL_OF(chdir, P), TEXT(".")}, {CALL_OF(mkdir, P, 0700), TEXT("directory")}, {CALL_OF(chmod, P, 0600), TEXT("file")},
        {CALL_OF(rename, P, (long)"file"), TEXT("missing")}, {CALL_OF(rename, (long)"missing", P), TEXT("file")},
        {CALL_OF(truncate, P, 19), TEXT("file")}, {CALL_OF(unlink, P), TEXT("missing")}, {CALL_OF(link, P, (long)"file"), TEXT("link")},
        {CALL_OF(utimensat, directory, (long)"file", P, 0), IN((struct timespec[2]){{1, 2}, {3, 4}})},
        {CALL_OF(setxattr, (long)"file", (long)"user.name", P, 5, 0), TEXT("value"), .kind = ANY},
        {CALL_OF(getxattr, (long)"file", P, (long)near_room + 8192, 100), TEXT("user.missing"), .kind = ANY},
        {CALL_OF(memfd_create, P, 0), TEXT("a name"), .kind = FD}, {CALL_OF(inotify_add_watch, event, P, 1), TEXT("file")},
        {CALL_OF(getdents64, directory, P, 4096), .size = 4096, .kind = ANY, .before = rewind_directory},
        {CALL_OF(read, event, P, 8), .size = 8, .kind = ANY}, {CALL_OF(write, event, P, 8), IN(count)},
        {CALL_OF(pread64, file, P, 19, 0), .size = 19}, {CALL_OF(pwrite64, file, P, 7, 0), TEXT("content")},
        {CALL_OF(sendfile, event, file, P, 5), IN(offset)}, {CALL_OF(copy_file_range, file, P, file, 0, 0), IN(offset)},
        {CALL_OF(pipe, P), .size = 8, .kind = PAIR}, {CALL_OF(pipe2, P, O_CLOEXEC), .size = 8, .kind = PAIR},
        {CALL_OF(socketpair, AF_UNIX, SOCK_DGRAM, 0, P), .size = 8, .kind = PAIR},
        {CALL_OF(poll, P, 1, 0), IN(polled)}, {CALL_OF(ppoll, P, 1, 0, 0, 0), IN(polled)},
        {CALL_OF(ppoll, 0, 0, P, 0, 0), IN(soon), .kind = ANY},
        {CALL_OF(select, full_pipe[0] + 1, P, 0, 0, 0), .in = &set, .in_size = 8, .size = 8},
        {CALL_OF(pselect6, full_pipe[0] + 1, P, 0, 0, 0, 0), .in = &set, .in_size = 8, .size = 8},
        {CALL_OF(pselect6, 0, 0, 0, 0, P, 0), IN(soon), .kind = ANY},
        {CALL_OF(epoll_wait, epoll, P, 4, 0), .size = 48}, {CALL_OF(epoll_pwait, epoll, P, 4, 0, 0, 0), .size = 48},
        {CALL_OF(epoll_ctl, epoll, EPOLL_CTL_MOD, full_pipe[0], P), IN(changed)},
        {CALL_OF(ioctl, full_pipe[0], FIONREAD, P), .size = 4}, {CALL_OF(ioctl, file, TCGETS, P), .size = 60},
        {CALL_OF(ioctl, full_pipe[0], FIONBIO, P), .in = &(int){0}, .in_size = 4, .size = 4},
        {CALL_OF(fcntl, file, F_GETLK, P), IN(lock)}, {CALL_OF(fcntl, file, F_GETFL, P), .size = 8, .kind = ANY},
        {CALL_OF(bind, sockets[0], P, sizeof address), IN(address)}, {CALL_OF(connect, sockets[0], P, sizeof address), IN(address)},
        {CALL_OF(getsockname, sockets[1], P, (long)&room_for_name), .size = 110},
        {CALL_OF(getsockname, sockets[1], (long)near_room + 8192, P), IN(room_for_name)},
        {CALL_OF(getsockopt, sockets[0], SOL_SOCKET, SO_TYPE, P, (long)&(socklen_t){4}), .size = 4},
        {CALL_OF(setsockopt, sockets[0], SOL_SOCKET, SO_PASSCRED, P, 4), IN(one)},
        {CALL_OF(nanosleep, P, 0), IN(soon)}, {CALL_OF(clock_nanosleep, CLOCK_MONOTONIC, 0, P, 0), IN(soon)},
        {CALL_OF(clock_getres, CLOCK_MONOTONIC, P), .size = 16}, {CALL_OF(clock_gettime, CLOCK_REALTIME, P), .size = 16, .kind = ANY},
        {CALL_OF(gettimeofday, P, 0), .size = 16, .kind = ANY}, {CALL_OF(time, P), .size = 8, .kind = ANY},
        {CALL_OF(timerfd_settime, timer, 0, P, 0), IN(setting)}, {CALL_OF(timerfd_gettime, timer, P), .size = 32, .kind = ANY},
        {CALL_OF(timer_settime, posix_timer, 0, P, 0), IN(setting)}, {CALL_OF(timer_gettime, posix_timer, P), .size = 32, .kind = ANY},
        {CALL_OF(getitimer, ITIMER_REAL, P), .size = 32}, {CALL_OF(setitimer, ITIMER_REAL, P, 0), .size = 32},
        {CALL_OF(times, P), .size = 32, .kind = ANY}, {CALL_OF(getrusage, RUSAGE_SELF, P), .size = 144, .kind = ANY},
        {CALL_OF(getrlimit, RLIMIT_CORE, P), .size = 16}, {CALL_OF(prlimit64, 0, RLIMIT_CORE, P, 0), IN(limit)},
        {CALL_OF(sysinfo, P), .size = 112, .kind = ANY}, {CALL_OF(uname, P), .size = 390}, {CALL_OF(getcpu, P, 0, 0), .size = 4, .kind = ANY},
        {CALL_OF(getresuid, P, (long)near_room + 8192, (long)near_room + 8200), .size = 4}, {CALL_OF(getgroups, 64, P), .size = 256},
        {CALL_OF(sched_getaffinity, 0, 128, P), .size = 128}, {CALL_OF(sched_getparam, 0, P), .size = 4},
        {CALL_OF(sched_setparam, 0, P), .size = 4}, {CALL_OF(sched_rr_get_interval, 0, P), .size = 16, .kind = ANY},
        {CALL_OF(capget, P, 0), .in = &(int[2]){0x20080522, 0}, .in_size = 8, .size = 8},
        {CALL_OF(prctl, 16 /* PR_GET_NAME */, P), .size = 16}, {CALL_OF(arch_prctl, 0x1003 /* ARCH_GET_FS */, P), .size = 8},
        {CALL_OF(mincore, (long)near_room, 4 * PAGE, P), .size = 4, .kind = ANY},
        {CALL_OF(semop, semaphore, P, 1), IN(raise)}, {CALL_OF(semctl, semaphore, 0, GETALL, P), .size = 4, .kind = ANY},
        {CALL_OF(msgsnd, queue, P, 24, 0), IN(message)}, {CALL_OF(msgrcv, queue, P, 24, 0, IPC_NOWAIT), .size = 32},
        {CALL_OF(futex, P, FUTEX_WAKE, 1, 0, 0, 0), .size = 4}, {CALL_OF(futex, P, FUTEX_WAIT, 7, 0, 0, 0), .size = 4},
        {CALL_OF(futex, (long)near_room + 8192, FUTEX_WAIT_PRIVATE, 0, P, 0, 0), IN(soon)},
        {CALL_OF(getrandom, P, 64, 0), .size = 64, .kind = ANY}, {CALL_OF(wait4, -1, P, 0, 0), .size = 4},
        {CALL_OF(waitid, P_ALL, 0, P, WEXITED, 0), .size = 128}, {CALL_OF(mq_open, P, O_RDONLY, 0, 0), TEXT("missing")},
        {CALL_OF(ioctl, file, 0x5413 /* TIOCGWINSZ */, P), .size = 8}, {CALL_OF(get_robust_list, 0, P, (long)near_room + 8192), .size = 8},
        {CALL_OF(add_key, P, (long)"name", 0, 0, 0), TEXT("no such type"), .kind = ANY},
    };
    memset(near_room + 8192, 0, 4096);
    run_entries(entries, sizeof entries / sizeof *entries, unchanged);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    prepare();
    run_all();
    msgctl(queue, IPC_RMID, 0), semctl(semaphore, 0, IPC_RMID);
    unlink("file"), unlink("link"), rmdir("directory");
    char name[200];
    MUST(getcwd(name, sizeof name) && rmdir(name) == 0);
}
