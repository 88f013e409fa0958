// A reader for the XML of an S3 store's answers. See xml.h.
#include "common/objects/xml.h"

#include <stdlib.h>
#include <string.h>

enum token { OPEN, CLOSE, SINGLE, END, BAD };

struct reader {
    const char *at, *end;
    char name[LH_XML_NAME_BYTES]; // name of the tag; "": too long for a known one
    struct lh_span text;          // text between the previous tag and this one, not decoded
};

static struct reader reader(struct lh_span xml)
{
    const char *at = xml.len ? (const char *)xml.data : "";
    return (struct reader){.at = at, .end = at + xml.len};
}

static const char *find(const struct reader *r, const char *text)
{
    return memmem(r->at, (size_t)(r->end - r->at), text, strlen(text));
}

// Skips <!-- -->, <!...> or <?...?>. Gives false if its end is missing.
static bool pass(struct reader *r)
{
    bool comment = r->end - r->at >= 4 && !memcmp(r->at, "<!--", 4);
    const char *end = find(r, comment ? "-->" : ">");
    if (!end) return false;
    r->at = end + (comment ? 3 : 1);
    return true;
}

static enum token read_tag(struct reader *r)
{
    const char *at = r->at + 1, *end = find(r, ">");
    if (!end) return BAD;
    bool close = at<end && * at == '/', single = end> at && end[-1] == '/';
    at += close;
    size_t n = 0;
    while (at + n < end && !strchr(" \t\r\n/", at[n])) n++;
    if (!n) return BAD;
    r->name[0] = 0;
    if (n < sizeof r->name) {
        memcpy(r->name, at, n);
        r->name[n] = 0;
    }
    r->at = end + 1;
    return close ? CLOSE : single ? SINGLE : OPEN;
}

static enum token next(struct reader *r)
{
    const char *from = r->at;
    for (;;) {
        const char *tag = r->at < r->end ? memchr(r->at, '<', (size_t)(r->end - r->at)) : NULL;
        if (!tag) return END;
        r->text = lh_span(from, (size_t)(tag - from));
        r->at = tag;
        if (r->end - tag < 2 || (tag[1] != '!' && tag[1] != '?')) return read_tag(r);
        if (!pass(r)) return BAD;
        from = r->at;
    }
}

// Decodes one character of a text; 0: an unknown entity.
static char decode(const char **at, const char *end)
{
    static const struct {
        const char *name;
        char is;
    } entities[] = {
        {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    size_t left = (size_t)(end - *at);
    if (**at != '&') return *(*at)++;
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++) {
        size_t n = strlen(entities[i].name);
        if (left < n || memcmp(*at, entities[i].name, n) != 0) continue;
        *at += n;
        return entities[i].is;
    }
    unsigned number = 0;
    bool hex = left > 3 && (*at)[1] == '#' && (*at)[2] == 'x';
    if (left < 4 || (*at)[1] != '#') return 0;
    for (*at += hex ? 3 : 2; *at < end && **at != ';'; (*at)++) {
        const char *digit = memchr("0123456789abcdef", **at | (hex ? 0x20 : 0), hex ? 16 : 10);
        static const char digits[] = "0123456789abcdef";
        if (!digit || number > 127) return 0;
        for (unsigned d = 0; d < sizeof digits - 1; d++)
            if (digits[d] == *digit) number = number * (hex ? 16 : 10) + d;
    }
    if (*at == end || number > 127) return 0;
    (*at)++;
    return (char)number;
}

// Copies a text up to its first unknown entity, or to `size`; false: that was not all of it.
static bool take(struct lh_span text, char *out, size_t size)
{
    const char *at = (const char *)text.data, *end = at + text.len;
    size_t n = 0;
    bool fits = true;
    while (fits && at < end) {
        char c = decode(&at, end);
        fits = c && n + 1 < size;
        if (fits) out[n++] = c;
    }
    out[n] = 0;
    return fits;
}

lh_err lh_xml_rows(struct lh_span xml, const char *name, const char *key, const char *value,
                   lh_xml_fn each, void *arg)
{
    struct reader r = reader(xml);
    struct lh_xml_row row;
    bool inside = false, fine = true, any = false;
    for (;;) {
        enum token t = next(&r);
        if (t == END) break;
        any = true;
        if (t == BAD) return lh_fail(LH_ERR_MALFORMED, "the store's answer is no XML");
        if (t == OPEN && !strcmp(r.name, name)) {
            inside = true;
            row.key[0] = row.value[0] = 0;
        } else if (t == CLOSE && inside && !strcmp(r.name, name)) {
            inside = false;
            LH_TRY(each(arg, &row));
        } else if (t == CLOSE && inside && !strcmp(r.name, key)) {
            fine = take(r.text, row.key, sizeof row.key);
        } else if (t == CLOSE && inside && !strcmp(r.name, value)) {
            fine = take(r.text, row.value, sizeof row.value);
        }
        if (!fine)
            return lh_fail(LH_ERR_MALFORMED, "the store's answer has a <%s> that can't be read",
                           r.name);
    }
    if (inside || !any) return lh_fail(LH_ERR_MALFORMED, "the store's answer ends early");
    return LH_OK;
}

void lh_xml_find(struct lh_span xml, const char *field, const char *except, char *out, size_t size)
{
    struct reader r = reader(xml);
    bool inside = false;
    out[0] = 0;
    for (;;) {
        enum token t = next(&r);
        if (t == END || t == BAD) return;
        if (except && !strcmp(r.name, except)) inside = t == OPEN;
        if (t != CLOSE || inside || strcmp(r.name, field) != 0) continue;
        (void)take(r.text, out, size); // a text that is cut off is only shown
        return;
    }
}
