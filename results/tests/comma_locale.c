#include "dpb_comma_locale.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[64];

static bool has_comma(void)
{
    char number[16];

    snprintf(number, sizeof(number), "%.1f", 0.5);
    return strcmp(number, "0,5") == 0;
}

static bool run(const char *format)
{
    char command[256];

    snprintf(command, sizeof(command), format, folder);
    return system(command) == 0;
}

bool comma_locale_enter(void)
{
    if (setlocale(LC_ALL, "de_DE.UTF-8"))
        return has_comma();
    strcpy(folder, "/tmp/dpb-locale-XXXXXX");
    if (!mkdtemp(folder))
        return false;
    if (run("localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1") &&
        setenv("LOCPATH", folder, 1) == 0 && setlocale(LC_ALL, "de_DE.UTF-8") && has_comma())
        return true;
    comma_locale_leave();
    return false;
}

void comma_locale_leave(void)
{
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    if (folder[0] && !run("rm -r %s"))
        fprintf(stderr, "cannot remove %s\n", folder);
    folder[0] = '\0';
}
