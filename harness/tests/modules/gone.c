/* A library that a module was linked with and that is not found when it is opened. */
int dpb_gone(void);

int dpb_gone(void)
{
    return 0;
}
