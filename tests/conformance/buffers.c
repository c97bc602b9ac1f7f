// Buffers of every size and state, alone, in arrays and in messages: counts and bytes are those of plain memory.
#include "far.h"
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/fiemap.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/fsmap.h>
#include <linux/loop.h>
#include <linux/random.h>
#include <linux/sockios.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static const size_t large = 40 * MIB; // more than the tests' budget
static char *big;
static int file;

static int temporary(void) {
    char name[] = "/tmp/buffers-XXXXXX";
    int fd = mkstemp(name);
    MUST(fd >= 0 && unlink(name) == 0);
    return fd;
}

// Reads `bytes` of the pattern from the other end, and says how many came and how many words were wrong.
struct reader {
    int fd;
    size_t bytes, wrong;
};

static void *read_all(void *argument) {
    struct reader *reader = argument;
    static uint64_t words[8192];
    size_t wanted = reader->bytes, held = 0, done = 0;
    for (reader->bytes = 0; reader->bytes < wanted;) {
        ssize_t n = read(reader->fd, (char *)words + held, sizeof words - held);
        if (n <= 0) break;
        reader->bytes += n, held += n;
        size_t whole = held / 8;
        for (size_t i = 0; i < whole; i++) reader->wrong += words[i] != mix(7 + done + i);
        done += whole, held -= whole * 8;
        memmove(words, words + whole, held);
    }
    return NULL;
}

static void files(void) {
    fill(big, large, 7);
    SHOW(write(file, big, large) == (ssize_t)large), SHOW(lseek(file, 0, SEEK_CUR) == (off_t)large);
    memset(big, 0, large);
    SHOW(pread(file, big, large, 0) == (ssize_t)large), SHOW(wrong(big, large, 7));
    SHOW(lseek(file, -100, SEEK_END) == (off_t)large - 100), SHOW(read(file, big, large)), SHOW(read(file, big, large));
    fill(big, large, 8);
    SHOW(pwrite(file, big + 3 * MIB, 20 * MIB, 5) == 20 * (ssize_t)MIB);
    SHOW(pread(file, big, 20 * MIB, 5) == 20 * (ssize_t)MIB), SHOW(wrong(big, 20 * MIB, 8 + 3 * MIB / 8));
    // Half of it is no memory: what comes before counts.
    char *part = map_pages(4 * MIB, PROT_READ | PROT_WRITE);
    memset(part, 1, 4 * MIB);
    MUST(mprotect(part + 2 * MIB, 2 * MIB, PROT_NONE) == 0);
    CALL(pread(file, part + 2 * MIB, MIB, 0)), CALL(pwrite(file, part + 2 * MIB, MIB, 0));
    SHOW(pread(file, part, 4 * MIB, 0) <= 2 * (ssize_t)MIB);
    CALL(read(file, (void *)8, 100)), CALL(read(-1, big, 100)), CALL(write(-1, big, large)), SHOW(read(file, big, 0));
}

static void streams(const char *what, int from, int to, int sends) {
    fill(big, large, 7);
    struct reader reader = {from, large, 0};
    pthread_t thread;
    pthread_create(&thread, NULL, read_all, &reader);
    ssize_t sent = sends ? send(to, big, large, 0) : write(to, big, large);
    pthread_join(thread, NULL);
    printf("%s: %d sent, %zu came, %zu wrong\n", what, sent == (ssize_t)large, reader.bytes, reader.wrong);
    // A read returns what is there and does not wait for its buffer to fill.
    MUST(write(to, "some", 4) == 4);
    SHOW(read(from, big, large));
    fcntl(from, F_SETFL, O_NONBLOCK), fcntl(to, F_SETFL, O_NONBLOCK);
    CALL(read(from, big, large));
    ssize_t part = write(to, big, large);
    SHOW(part > 0 && part < (ssize_t)large), CALL(write(to, big, large));
}

// A look at what waits in a socket: of more than one step's bytes, or into more pieces than one step has, it is the same data once.
static void peeks(void) {
    enum { BYTES = 320 * 1024, PIECES = 80 };
    int ends[2], room_to_send = BYTES * 2;
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room_to_send, sizeof room_to_send);
    char *at = map_pages(2 * MIB, PROT_READ | PROT_WRITE);
    fill(at, BYTES, 7);
    for (size_t done = 0; done < BYTES; done += 64 * 1024) MUST(send(ends[1], at + done, 64 * 1024, MSG_DONTWAIT) == 64 * 1024);
    const int how[] = {MSG_PEEK, MSG_PEEK | MSG_WAITALL, MSG_PEEK | MSG_DONTWAIT};
    struct iovec list[PIECES];
    for (int i = 0; i < PIECES; i++) list[i] = (struct iovec){at + i * 5 * PAGE, PAGE};
    for (int i = 0; i < 3; i++) {
        memset(at, 1, 2 * MIB), chill();
        printf("peek %d\n", i);
        SHOW(recv(ends[0], at, BYTES, how[i])), SHOW(wrong(at, BYTES, 7)), SHOW(at[BYTES]);
        memset(at, 1, 2 * MIB), chill();
        struct msghdr message = {.msg_iov = list, .msg_iovlen = PIECES};
        SHOW(recvmsg(ends[0], &message, how[i]));
        size_t bad = 0;
        for (int j = 0; j < PIECES; j++) bad += wrong(list[j].iov_base, PAGE, 7 + j * PAGE / 8);
        SHOW(bad), SHOW(at[PAGE]), SHOW(message.msg_flags);
    }
    // Nothing of it was taken.
    memset(at, 1, 2 * MIB), chill();
    SHOW(recv(ends[0], at, BYTES, MSG_WAITALL)), SHOW(wrong(at, BYTES, 7)), CALL(recv(ends[0], at, BYTES, MSG_PEEK | MSG_DONTWAIT));
    munmap(at, 2 * MIB), close(ends[0]), close(ends[1]);
}

// A record of many parts, each on a page of its own, is one: another writer's comes before or behind it. A pipe of packets shows it.
static void records(void) {
    enum { PARTS = 40, PART = 50, BYTES = PARTS * PART };
    char *at = map_pages(PARTS * 2 * PAGE, PROT_READ | PROT_WRITE), *here = near_room;
    struct iovec list[PARTS];
    for (int i = 0; i < PARTS; i++) list[i] = (struct iovec){memset(at + i * 2 * PAGE, 'a' + i % 26, PART), PART};
    int ends[2];
    MUST(pipe2(ends, O_DIRECT) == 0);
    chill(), SHOW(writev(ends[1], list, PARTS));
    SHOW(read(ends[0], here, BYTES)), fcntl(ends[0], F_SETFL, O_NONBLOCK), CALL(read(ends[0], here + BYTES, 1));
    size_t bad = 0;
    for (int i = 0; i < BYTES; i++) bad += here[i] != 'a' + i / PART % 26;
    SHOW(bad);
    // A file: with its offset, and behind what is there.
    SHOW(ftruncate(file, 0)), chill(), SHOW(pwritev(file, list, PARTS, 3)), SHOW(pread(file, here, 2 * BYTES, 3));
    bad = 0;
    for (int i = 0; i < BYTES; i++) bad += here[i] != 'a' + i / PART % 26;
    SHOW(bad), SHOW(pwritev2(file, list, PARTS, -1, RWF_APPEND)), SHOW(lseek(file, 0, SEEK_END));
    // One part is no memory: those before it are written.
    list[30].iov_base = (void *)8;
    chill(), SHOW(pwritev(file, list, PARTS, 0));
    munmap(at, PARTS * 2 * PAGE), close(ends[0]), close(ends[1]);
}

static void arrays(enum state state) {
    char *at = room(state, 64 * 1024);
    struct iovec *array = room(state == NEAR ? COLD : state, sizeof *array * 40);
    struct iovec list[40];
    printf("arrays %s\n", state_names[state]);
    fill(at, 16 * 1024, 7);
    for (int i = 0; i < 40; i++) list[i] = (struct iovec){at + i * 100, 100};
    settle(state, at);
    SHOW(ftruncate(file, 0)), SHOW(pwritev(file, list, 40, 0)), SHOW(lseek(file, 0, SEEK_SET));
    memset(at, 0, 4000);
    settle(state, at);
    SHOW(readv(file, list, 40)), SHOW(wrong(at, 4000, 7));
    SHOW(preadv2(file, list, 3, 1000, 0)), SHOW(writev(file, list, 0)), CALL(readv(file, list, 2000));
    CALL(readv(file, (void *)8, 2)), CALL(writev(-1, list, 2)), CALL(preadv(file, list, 2, -5));
    list[1].iov_len = (size_t)-1, CALL(readv(file, list, 3));
    // The array itself in that state.
    for (int i = 0; i < 40; i++) array[i] = (struct iovec){near_room + 40000 + i * 100, 100};
    settle(state, array);
    SHOW(preadv(file, array, 40, 0)), SHOW(wrong(near_room + 40000, 4000, 7));
}

static void large_arrays(void) {
    static struct iovec list[1000];
    fill(big, large, 7);
    for (int i = 0; i < 1000; i++) list[i] = (struct iovec){big + i * 40000, 40000};
    SHOW(ftruncate(file, 0)), SHOW(pwritev(file, list, 1000, 0)), memset(big, 0, large);
    SHOW(preadv(file, list, 1000, 0)), SHOW(wrong(big, 40000000, 7));
    int ends[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    struct reader reader = {ends[0], 40000000, 0};
    pthread_t thread;
    pthread_create(&thread, NULL, read_all, &reader);
    struct msghdr message = {.msg_iov = list, .msg_iovlen = 1000};
    SHOW(sendmsg(ends[1], &message, 0)), pthread_join(thread, NULL), SHOW(reader.bytes), SHOW(reader.wrong);
    // A datagram is one, in however many parts.
    int datagrams[2];
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams) == 0);
    for (int i = 0; i < 1000; i++) list[i] = (struct iovec){big + i * 40000, 80};
    message.msg_iovlen = 500;
    chill();
    SHOW(sendmsg(datagrams[1], &message, 0));
    for (int i = 0; i < 500; i++) list[500 + i] = (struct iovec){big + i * 40000 + 20000, 80};
    message.msg_iov = list + 500;
    chill();
    SHOW(recvmsg(datagrams[0], &message, 0));
    size_t bad = 0;
    for (int i = 0; i < 500; i++) bad += memcmp(big + i * 40000, big + i * 40000 + 20000, 80) != 0;
    SHOW(bad), CALL(send(datagrams[1], big, large, 0)), CALL(recv(datagrams[0], big, 100, MSG_DONTWAIT));
}

static void messages(enum state state) {
    struct letter {
        struct msghdr header;
        struct iovec parts[2];
        char control[CMSG_SPACE(sizeof(int))];
        char text[200];
    } *at = room(state, sizeof *at);
    int ends[2];
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    printf("messages %s\n", state_names[state]);
    for (int receives = 0; receives < 2; receives++) {
        memset(at, 0, sizeof *at);
        at->parts[0] = (struct iovec){at->text, 20}, at->parts[1] = (struct iovec){at->text + 100, 20};
        at->header = (struct msghdr){.msg_iov = at->parts, .msg_iovlen = 2, .msg_control = at->control,
                                     .msg_controllen = sizeof at->control};
        if (!receives) {
            strcpy(at->text, "the first part"), strcpy(at->text + 100, "the second part");
            struct cmsghdr *control = CMSG_FIRSTHDR(&at->header);
            control->cmsg_level = SOL_SOCKET, control->cmsg_type = SCM_RIGHTS, control->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(control), &file, sizeof file);
        }
        settle(state, at);
        if (receives) SHOW(recvmsg(ends[0], &at->header, 0));
        else SHOW(sendmsg(ends[1], &at->header, 0));
    }
    int received;
    memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&at->header)), sizeof received);
    printf("%s, %s, control %zu, flags %d, a file %d\n", at->text, at->text + 100, at->header.msg_controllen,
           at->header.msg_flags, fcntl(received, F_GETFD) >= 0);
    struct mmsghdr *several = room(state, sizeof *several * 8);
    struct iovec parts[8];
    for (int receives = 0; receives < 2; receives++) {
        char *texts = (char *)(several + 8);
        for (int i = 0; i < 8; i++) {
            parts[i] = (struct iovec){texts + i * 32, 32};
            several[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &parts[i], .msg_iovlen = 1}};
            if (!receives) snprintf(texts + i * 32, 32, "message %d", i);
        }
        settle(state, several);
        if (receives) SHOW(recvmmsg(ends[0], several, 8, MSG_DONTWAIT, NULL));
        else SHOW(sendmmsg(ends[1], several, 8, 0));
        SHOW(several[0].msg_len), SHOW(several[7].msg_len);
        if (receives) printf("%s ... %s\n", texts, texts + 7 * 32);
        else memset(texts, 0, 8 * 32);
    }
    CALL(sendmsg(ends[0], (void *)8, 0)), CALL(recvmmsg(ends[0], (void *)8, 2, MSG_DONTWAIT, NULL));
    close(received), close(ends[0]), close(ends[1]);
}

// Structures of ioctl(2) whose arrays, or ends, lie on pages that were never touched: the request's number tells the header's length,
// or none.
static void *before_untouched(size_t header) {
    char *at = map_pages(128 * PAGE, PROT_READ | PROT_WRITE) + PAGE - header;
    return memset(at, 0, header);
}

static void requests(void) {
    enum { RECORDS = 128 };
    struct fsmap_head *head = before_untouched(sizeof *head);
    head->fmh_count = RECORDS, memset(&head->fmh_keys[1], 255, offsetof(struct fsmap, fmr_reserved));
    int here = open(".", O_RDONLY), answer = ioctl(here, FS_IOC_GETFSMAP, head);
    if (answer == -1 && (errno == ENOTTY || errno == EOPNOTSUPP)) printf("fsmap: skipped, this file system tells no map\n");
    else printf("fsmap: %s, more than 100 records %d\n", answer ? strerrorname_np(errno) : "ok", head->fmh_entries > 100);
    struct fiemap *extents = before_untouched(sizeof *extents);
    extents->fm_length = ~0ull, extents->fm_extent_count = RECORDS;
    answer = ioctl(file, FS_IOC_FIEMAP, extents);
    printf("fiemap: %s\n", answer ? strerrorname_np(errno) : "ok");
    // What only root may do: nothing is changed. 304 bytes by a number without a size, and a pool's header of 8.
    struct loop_config *loop = before_untouched(280);
    loop->fd = -1;
    int device = open("/dev/loop0", O_RDWR);
    CALL(ioctl(device, LOOP_CONFIGURE, loop));
    struct rand_pool_info *pool = before_untouched(sizeof *pool);
    pool->buf_size = 3 * PAGE;
    int random = open("/dev/random", O_RDWR);
    SHOW(ioctl(random, RNDADDENTROPY, pool) == 0 || errno == EPERM);
    // The names of what links can do: many, and how many the kernel says.
    struct ethtool_gstrings *names = before_untouched(sizeof *names);
    struct ifreq interface = {.ifr_name = "lo", .ifr_data = (void *)names};
    names->cmd = ETHTOOL_GSTRINGS, names->string_set = ETH_SS_LINK_MODES;
    int any = socket(AF_INET, SOCK_DGRAM, 0);
    CALL(ioctl(any, SIOCETHTOOL, &interface)), SHOW(names->len), SHOW(strlen((char *)names->data));
    // What lies behind a small one is not its own: pages that may be read only, not at all, or that are not there.
    for (int how = 0; how < 3; how++) {
        char *small = before_untouched(sizeof(int)), *behind = small + sizeof(int);
        memset(behind, 3, PAGE);
        if (how < 2) MUST(mprotect(behind, 4 * PAGE, how ? PROT_NONE : PROT_READ) == 0);
        if (how == 2) MUST(munmap(behind, 4 * PAGE) == 0);
        chill();
        CALL(ioctl(file, FIONREAD, small)), CALL(ioctl(any, FIONREAD, small)), SHOW(probe(behind, 'w'));
        if (how == 0) SHOW(*behind), SHOW(behind[PAGE]);
    }
    close(here), close(device), close(random), close(any);
}

// A page of its own that is not local, whose content is this; nothing else lies beside.
static void *hidden(const void *content, size_t bytes) {
    char *at = map_pages(3 * PAGE, PROT_READ | PROT_WRITE) + PAGE;
    return memcpy(at, content, bytes);
}

// Structures on the stack that name far memory, by libc's functions and by number.
static void behind_near_ones(void) {
    int any = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifconf interfaces = {.ifc_len = PAGE, .ifc_buf = hidden("", 1)};
    chill(), SHOW(ioctl(any, SIOCGIFCONF, &interfaces));
    const int found = interfaces.ifc_len;
    interfaces = (struct ifconf){.ifc_len = PAGE, .ifc_buf = hidden("", 1)};
    chill(), SHOW(syscall(SYS_ioctl, any, SIOCGIFCONF, &interfaces)), SHOW(interfaces.ifc_len == found);
    struct sock_filter let[] = {BPF_STMT(BPF_RET | BPF_K, 1)}, *instructions = hidden(let, sizeof let);
    struct sock_fprog program = {1, instructions};
    chill(), CALL(setsockopt(any, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));
    chill(), CALL(syscall(SYS_setsockopt, any, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));
    // What it is asked for is counted in instructions.
    static struct sock_filter many[2000];
    for (int i = 0; i < 2000; i++) many[i] = let[0];
    program = (struct sock_fprog){2000, many};
    SHOW(setsockopt(any, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));
    struct sock_filter *copy = (void *)map_pages(8 * PAGE, PROT_READ | PROT_WRITE);
    socklen_t length = 2000;
    memset(copy, 1, 8 * PAGE), chill();
    SHOW(getsockopt(any, SOL_SOCKET, SO_GET_FILTER, copy, &length)), SHOW(length), SHOW(memcmp(copy, many, sizeof many));
    // A group of sockets that share packets by a filter; without privileges there is none.
    int packets = socket(AF_PACKET, SOCK_RAW, htons(3)), group = 6 << 16 | (getpid() & 0xffff);
    struct sockaddr_ll loopback = {AF_PACKET, htons(3), 1};
    bind(packets, (void *)&loopback, sizeof loopback);
    int grouped = setsockopt(packets, SOL_PACKET, PACKET_FANOUT, &group, sizeof group);
    program = (struct sock_fprog){1, instructions};
    chill(), SHOW(grouped < 0 || setsockopt(packets, SOL_PACKET, 22 /* PACKET_FANOUT_DATA */, &program, sizeof program) == 0);
    close(any), close(packets);
}

// What is received without copying, but for what does not fill a page: that goes to a buffer that the option names.
static void remainders(void) {
    struct {
        uint64_t address;
        uint32_t length, skip, queued;
        int32_t error;
        uint64_t buffer;
        int32_t buffer_length;
        uint32_t flags;
        uint64_t control, control_length;
        uint32_t message_flags, reserved;
    } receive = {.buffer = (uint64_t)hidden("some text", 9), .buffer_length = 4096};
    struct sockaddr_in address = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), from = socket(AF_INET, SOCK_STREAM, 0);
    MUST(bind(listener, (void *)&address, length) == 0 && listen(listener, 1) == 0);
    MUST(getsockname(listener, (void *)&address, &length) == 0 && connect(from, (void *)&address, length) == 0);
    int to = accept(listener, NULL, NULL);
    char byte;
    void *window = mmap(NULL, 16 * PAGE, PROT_READ, MAP_SHARED, to, 0);
    receive.address = (uint64_t)window, length = sizeof receive;
    MUST(send(from, "hello hello", 11, 0) == 11 && recv(to, &byte, 1, MSG_PEEK) == 1);
    chill(), SHOW(getsockopt(to, IPPROTO_TCP, 35 /* TCP_ZEROCOPY_RECEIVE */, &receive, &length)), SHOW(receive.buffer_length);
    SHOW(receive.buffer_length != 11 || memcmp((char *)receive.buffer, "hello hello", 11) == 0);
    close(listener), close(from), close(to);
}

// A vector that is longer than any structure, over the border of two pages.
static void auxiliary(void) {
    enum { ROOM = 1024, BEFORE = 150 };
    char *at = memset(map_pages(8 * PAGE, PROT_READ | PROT_WRITE), 1, 8 * PAGE) + 4 * PAGE - BEFORE, here[ROOM] = {};
    int known = prctl(0x41555856 /* PR_GET_AUXV */, here, ROOM, 0, 0);
    chill(), (void)*(volatile char *)at;
    SHOW(prctl(0x41555856, at, ROOM, 0, 0) == known), SHOW(known < 0 || memcmp(at, here, known) == 0);
}

// The kernel's own answers about a process's memory; which there are depends on the kernel.
static void maps(void) {
    struct { uint64_t size, flags, start, end, walk_end, vec, vec_len, most, inverted, mask, any, told; } scan = {sizeof scan};
    struct {
        uint64_t size, flags, address, start, end, vma_flags, page, offset, inode;
        uint32_t major, minor, name_size, id_size;
        uint64_t name, id;
    } query = {sizeof query, .address = (uint64_t)maps};
    char *mapped = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(mapped, 1, MIB);
    uint64_t *regions = hidden("", 1);
    scan.start = (uint64_t)mapped, scan.end = scan.start + MIB, scan.vec = (uint64_t)regions, scan.vec_len = 100;
    scan.any = scan.told = 8; // PAGE_IS_PRESENT
    int pages = open("/proc/self/pagemap", O_RDONLY), list = open("/proc/self/maps", O_RDONLY);
    chill(), SHOW(ioctl(pages, _IOC(3, 'f', 16, sizeof scan), &scan)), SHOW(regions[0] == scan.start);
    char *name = hidden("", 1);
    query.name = (uint64_t)name, query.name_size = PAGE;
    chill(), SHOW(ioctl(list, _IOC(3, 'f', 17, sizeof query), &query));
    name = strrchr(name, '/'), SHOW(name && strcmp(name, "/buffers") == 0);
    munmap(mapped, MIB), close(pages), close(list);
}

static long on_bpf(int command, const uint64_t *attributes, size_t words) {
    return syscall(SYS_bpf, command, attributes, words * sizeof *attributes);
}

// Attributes of bpf(2), near and far, and what they name. Where the kernel refuses a map or a program, all is refused alike.
static void maps_and_programs(void) {
    enum { CREATE, LOOKUP, UPDATE, LOAD = 5, INFORMATION = 15, LOOKUP_BATCH = 24, ARRAY = 2, FOR_EACH_PROCESSOR = 6, VALUE = 3 * PAGE };
    uint32_t key = 1;
    char *value = memset(map_pages(20 * PAGE, PROT_READ | PROT_WRITE), 7, 20 * PAGE), *read = map_pages(20 * PAGE, PROT_READ | PROT_WRITE);
    const uint64_t array[9] = {ARRAY | 4ull << 32, VALUE | 4ull << 32}, each[9] = {FOR_EACH_PROCESSOR | 4ull << 32, 4096 | 2ull << 32};
    const int fd = on_bpf(CREATE, array, 9), map_of_each = on_bpf(CREATE, each, 9), refused = fd < 0;
    uint64_t *far = (void *)map_pages(PAGE, PROT_READ | PROT_WRITE);
    for (int is_far = 0; is_far < 2; is_far++) {
        uint64_t near[18] = {fd, (uint64_t)hidden(&key, 4), (uint64_t)value}, *at = is_far ? memcpy(far, near, sizeof near) : near;
        chill(), SHOW(refused || on_bpf(UPDATE, at, 4) == 0);
        at[2] = (uint64_t)memset(read, 0, 20 * PAGE);
        chill(), SHOW(refused || on_bpf(LOOKUP, at, 4) == 0), SHOW(refused || !memcmp(read, value, VALUE) && !read[VALUE]);
        memset(at, 0, sizeof near), at[0] = map_of_each, at[1] = (uint64_t)hidden(&key, 4), at[2] = (uint64_t)read;
        chill(), SHOW(refused || on_bpf(LOOKUP, at, 4) == 0);
        uint32_t *keys = hidden("", 1);
        memset(at, 0, sizeof near), at[1] = (uint64_t)hidden("", 1), at[2] = (uint64_t)keys, at[3] = (uint64_t)read;
        at[4] = 4 | (uint64_t)fd << 32;
        chill(), SHOW(refused || on_bpf(LOOKUP_BATCH, at, 7) == 0 || errno == ENOENT);
        SHOW(refused || keys[3] == 3), SHOW(refused || !memcmp(read + VALUE, value, VALUE));
        const uint64_t instructions[] = {0x00000000000000b7, 0x0000000000000095}; // r0 = 0; exit
        memset(at, 0, sizeof near), at[0] = 1 | 2ull << 32, at[1] = (uint64_t)hidden(instructions, 16), at[2] = (uint64_t)hidden("GPL", 4);
        chill();
        const int program = on_bpf(LOAD, at, 18);
        SHOW(refused || program >= 0);
        // What the program was translated to.
        uint64_t *told = map_pages(PAGE, PROT_READ | PROT_WRITE), *translated = hidden("", 1);
        ((uint32_t *)told)[5] = 16, told[4] = (uint64_t)translated;
        memset(at, 0, sizeof near), at[0] = program | 232ull << 32, at[1] = (uint64_t)told;
        chill(), SHOW(refused || on_bpf(INFORMATION, at, 2) == 0), SHOW(refused || (translated[1] & 0xff) == 0x95);
        close(program);
    }
    close(fd), close(map_of_each);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    big = malloc(large);
    file = temporary();
    files();
    int ends[2];
    MUST(pipe(ends) == 0), streams("pipe", ends[0], ends[1], 0);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0), streams("socket", ends[0], ends[1], 1);
    for (enum state state = NEAR; state < PROTECTED; state++) arrays(state), messages(state);
    peeks(), records(), requests(), behind_near_ones(), remainders(), auxiliary(), maps(), maps_and_programs();
    large_arrays();
}
