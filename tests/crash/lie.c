// A disk that lies: loaded before libc, nothing is synced and every sync succeeds. power.py must
// then fail in the same way as if the programs did not sync.
int fsync(int fd);
int fdatasync(int fd);

int fsync(int fd)
{
    (void)fd;
    return 0;
}

int fdatasync(int fd)
{
    (void)fd;
    return 0;
}
