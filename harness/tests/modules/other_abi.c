/* A module of another ABI, whose struct has nothing but what stays in every one. */
struct module {
    int abi;
    const char *build;
};

const struct module *dpb_module_entry(const void *host);

const struct module *dpb_module_entry(const void *host)
{
    static const struct module module = {99, "another build"};

    (void)host;
    return &module;
}
