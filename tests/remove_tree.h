// Removes a folder and its contents.
#ifndef TESTS_REMOVE_TREE_H
#define TESTS_REMOVE_TREE_H

#include <ftw.h>
#include <stdio.h>

static inline int remove_tree_one(const char *path, const struct stat *is, int kind, struct FTW *at)
{
    (void)is, (void)kind, (void)at;
    return remove(path);
}

static inline int remove_tree(const char *root) // 0: removed
{
    return nftw(root, remove_tree_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
