/* A module that needs a library which is not found. */
int dpb_gone(void);
const void *dpb_module_entry(const void *host);

const void *dpb_module_entry(const void *host)
{
    return dpb_gone() ? host : 0;
}
