// Numbers of system calls that the headers of older distributions lack, as in asm/unistd_64.h. Those that they have expand to the same
// numbers in other words, so they are replaced.
#pragma once
#include <sys/syscall.h>

#undef SYS_cachestat
#define SYS_cachestat 451
#undef SYS_fchmodat2
#define SYS_fchmodat2 452
#undef SYS_futex_wake
#define SYS_futex_wake 454
#undef SYS_futex_wait
#define SYS_futex_wait 455
#undef SYS_futex_requeue
#define SYS_futex_requeue 456
#undef SYS_statmount
#define SYS_statmount 457
#undef SYS_listmount
#define SYS_listmount 458
#undef SYS_lsm_get_self_attr
#define SYS_lsm_get_self_attr 459
#undef SYS_lsm_set_self_attr
#define SYS_lsm_set_self_attr 460
#undef SYS_lsm_list_modules
#define SYS_lsm_list_modules 461
#undef SYS_mseal
#define SYS_mseal 462
#undef SYS_setxattrat
#define SYS_setxattrat 463
#undef SYS_getxattrat
#define SYS_getxattrat 464
#undef SYS_listxattrat
#define SYS_listxattrat 465
#undef SYS_removexattrat
#define SYS_removexattrat 466
#undef SYS_open_tree_attr
#define SYS_open_tree_attr 467
#undef SYS_file_getattr
#define SYS_file_getattr 468
#undef SYS_file_setattr
#define SYS_file_setattr 469
