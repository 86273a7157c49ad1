"""The names of the standard libraries of C and C++."""

from __future__ import annotations

from typing import Final

_OF_C: Final = """
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal
    stdalign stdarg stdatomic stdbit stdbool stdckdint stddef stdint stdio stdlib stdnoreturn
    string tgmath threads time uchar wchar wctype
    """
_OF_CPP: Final = """
    algorithm any array atomic barrier bit bitset charconv chrono codecvt compare complex
    concepts condition_variable coroutine deque exception execution expected filesystem flat_map
    flat_set format forward_list fstream functional future generator initializer_list iomanip
    ios iosfwd iostream istream iterator latch limits list locale map mdspan memory
    memory_resource mutex new numbers numeric optional ostream print queue random ranges ratio
    regex scoped_allocator semaphore set shared_mutex source_location span spanstream sstream
    stack stacktrace stdexcept stdfloat stop_token streambuf string string_view syncstream
    system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility
    valarray variant vector version
    """
_OF_POSIX: Final = """
    aio arpa/inet dirent dlfcn fcntl fnmatch ftw getopt glob grp iconv ifaddrs langinfo libgen
    malloc net/if netdb netinet/in netinet/tcp poll pthread pwd regex sched search semaphore
    spawn strings sys/epoll sys/event sys/file sys/ioctl sys/ipc sys/mman sys/param sys/resource
    sys/select sys/shm sys/socket sys/stat sys/statvfs sys/syscall sys/time sys/times sys/types
    sys/uio sys/un sys/utsname sys/wait sysexits syslog termios unistd utime windows winsock2
    ws2tcpip
    """

STANDARD_HEADERS: Final = frozenset(
    [f"{name}.h" for name in f"{_OF_C} {_OF_POSIX}".split()]
    + [f"c{name}" for name in _OF_C.split()]
    + _OF_CPP.split()
)
"""Headers that ``#include <...>`` means even if the archive has one of the same name."""

_C_FUNCTIONS: Final = """
    abort abs accept access acos aligned_alloc alloca asctime asin assert atan atan2 atexit atof
    atoi atol atoll bind bsearch calloc ceil chdir chmod clearerr clock clock_gettime close
    closedir connect cos cosh ctime difftime div dup dup2 errno execl execv execve execvp exit
    _exit exp fabs fclose fcntl fdopen feof ferror fflush fgetc fgetpos fgets fileno floor fmax
    fmin fmod fopen fork fprintf fputc fputs fread free freeaddrinfo freopen frexp fscanf fseek
    fseeko fsetpos fstat fsync ftell ftruncate fwrite gai_strerror getaddrinfo getc getchar
    getcwd getenv getline getopt getpid getsockname getsockopt gettimeofday gmtime htonl htons
    inet_ntop inet_pton ioctl isalnum isalpha isatty iscntrl isdigit isfinite isgraph isinf
    islower isnan isprint ispunct isspace isupper isxdigit kill labs ldexp listen llabs
    localeconv localtime localtime_r log log10 log2 longjmp lseek lstat malloc mblen mbstowcs
    mbtowc memchr memcmp memcpy memmove memset mkdir mkstemp mktime mmap modf munmap nanosleep
    ntohl ntohs offsetof open opendir perror pipe poll pow printf pthread_create pthread_join
    pthread_mutex_destroy pthread_mutex_init pthread_mutex_lock pthread_mutex_unlock putc
    putchar puts qsort raise rand read readdir readlink realloc realpath recv recvfrom remove
    rename rewind rmdir round scanf select send sendto setbuf setenv setjmp setlocale setsockopt
    setvbuf shutdown sigaction sigemptyset signal sin sinh sizeof sleep snprintf socket sprintf
    sqrt srand sscanf stat strcasecmp strcat strchr strcmp strcoll strcpy strcspn strdup
    strerror strerror_r strftime strlen strncasecmp strncat strncmp strncpy strndup strnlen
    strpbrk strrchr strsignal strspn strstr strtod strtof strtok strtok_r strtol strtold strtoll
    strtoul strtoull strxfrm sysconf system tan tanh time tmpfile tolower toupper trunc ungetc
    unlink unsetenv usleep va_arg va_copy va_end va_start vfprintf vprintf vsnprintf vsprintf
    wait waitpid wcscmp wcscpy wcslen wcstombs wctomb wmemcpy write __builtin_expect
    __builtin_unreachable __builtin_clz __builtin_clzll __builtin_ctz __builtin_ctzll
    __builtin_memcpy __builtin_popcount __builtin_bswap32 __builtin_bswap64 __builtin_prefetch
    __builtin_trap __attribute__ _Static_assert static_assert
    """
C_FUNCTIONS: Final = frozenset(_C_FUNCTIONS.split())

CPP_NAMES: Final = C_FUNCTIONS | {"std", "decltype", "noexcept", "typeid", "alignof", "defined"}
"""``std`` is all that the standard library of C++ has."""
