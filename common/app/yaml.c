// YAML trees, over libyaml's events. See yaml.h.
//
// Uses libyaml's events, not its documents, which expand aliases and have no limits.
#include "common/app/yaml.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct reader {
    yaml_parser_t parser;
    const char *name;
    unsigned nodes;
};

void lh_yaml_free(struct lh_yaml *node)
{
    while (node) {
        struct lh_yaml *next = node->next;
        lh_yaml_free(node->child); // recursion depth is at most LH_YAML_DEPTH_MAX
        free(node->key);
        free(node->text);
        free(node);
        node = next;
    }
}

const struct lh_yaml *lh_yaml_find(const struct lh_yaml *map, const char *key)
{
    const struct lh_yaml *at = map && map->kind == LH_YAML_MAP ? map->child : NULL;
    while (at && strcmp(at->key, key)) at = at->next;
    return at;
}

static unsigned line_of(const yaml_event_t *event)
{
    return (unsigned)event->start_mark.line + 1;
}

// After LH_OK the caller owns the event and deletes it.
static LH_MUST lh_err next_event(struct reader *r, yaml_event_t *event)
{
    if (yaml_parser_parse(&r->parser, event)) return LH_OK;
    if (r->parser.error == YAML_MEMORY_ERROR)
        return lh_fail(LH_ERR_NO_MEMORY, "%s: no memory for YAML", r->name);
    return lh_fail(LH_ERR_CONFIG, "%s:%zu: not YAML: %s", r->name, r->parser.problem_mark.line + 1,
                   r->parser.problem ? r->parser.problem : "unreadable");
}

static LH_MUST lh_err scalar_text(struct reader *r, const yaml_event_t *event, char **out)
{
    const char *text = (const char *)event->data.scalar.value;
    if (strlen(text) != event->data.scalar.length)
        return lh_fail(LH_ERR_CONFIG, "%s:%u: a zero byte in a value", r->name, line_of(event));
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    *out = strdup(plain && (!strcmp(text, "~") || !strcmp(text, "null")) ? "" : text);
    return *out ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "%s: no memory for YAML", r->name);
}

static bool is_decorated(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_ALIAS_EVENT: return true;
    case YAML_SCALAR_EVENT: return event->data.scalar.anchor || event->data.scalar.tag;
    case YAML_MAPPING_START_EVENT:
        return event->data.mapping_start.anchor || event->data.mapping_start.tag;
    case YAML_SEQUENCE_START_EVENT:
        return event->data.sequence_start.anchor || event->data.sequence_start.tag;
    default: return false;
    }
}

static LH_MUST lh_err make_node(struct reader *r, const yaml_event_t *event, unsigned depth,
                                struct lh_yaml **out)
{
    unsigned line = line_of(event);
    if (is_decorated(event))
        return lh_fail(LH_ERR_CONFIG, "%s:%u: anchors, aliases and tags are not read: write it out",
                       r->name, line);
    if (depth > LH_YAML_DEPTH_MAX)
        return lh_fail(LH_ERR_CONFIG, "%s:%u: nested deeper than %d", r->name, line,
                       LH_YAML_DEPTH_MAX);
    if (++r->nodes > LH_YAML_NODES_MAX)
        return lh_fail(LH_ERR_CONFIG, "%s:%u: more than %d values", r->name, line,
                       LH_YAML_NODES_MAX);
    struct lh_yaml *node = calloc(1, sizeof *node);
    if (!node) return lh_fail(LH_ERR_NO_MEMORY, "%s: no memory for YAML", r->name);
    node->line = line;
    *out = node;
    switch (event->type) {
    case YAML_MAPPING_START_EVENT: node->kind = LH_YAML_MAP; return LH_OK;
    case YAML_SEQUENCE_START_EVENT: node->kind = LH_YAML_LIST; return LH_OK;
    default: node->kind = LH_YAML_SCALAR; return scalar_text(r, event, &node->text);
    }
}

static LH_MUST lh_err read_children(struct reader *r, struct lh_yaml *parent, unsigned depth);

// Reads one value with its children. Links it into its parent at once, so that a failure frees it.
static LH_MUST lh_err read_node(struct reader *r, const yaml_event_t *event, unsigned depth,
                                struct lh_yaml **slot)
{
    LH_TRY(make_node(r, event, depth, slot));
    return (*slot)->kind == LH_YAML_SCALAR ? LH_OK : read_children(r, *slot, depth + 1);
}

static LH_MUST lh_err read_pair(struct reader *r, const yaml_event_t *key_event,
                                const struct lh_yaml *parent, unsigned depth, struct lh_yaml **slot)
{
    char *key = NULL;
    unsigned line = line_of(key_event);
    if (key_event->type != YAML_SCALAR_EVENT)
        return lh_fail(LH_ERR_CONFIG, "%s:%u: a key must be a word", r->name, line);
    LH_TRY(scalar_text(r, key_event, &key));
    const struct lh_yaml *first = lh_yaml_find(parent, key);
    lh_err err;
    if (first) {
        err = lh_fail(LH_ERR_CONFIG, "%s:%u: %s is given twice, first in line %u", r->name, line,
                      key, first->line);
        goto out_key;
    }
    yaml_event_t event;
    LH_TRY_TO(out_key, err, next_event(r, &event));
    struct lh_yaml *node = NULL;
    err = read_node(r, &event, depth, &node);
    yaml_event_delete(&event);
    if (!node) goto out_key;
    node->key = key;
    node->line = line;
    *slot = node;
    return err;

out_key:
    free(key);
    return err;
}

static LH_MUST lh_err read_children(struct reader *r, struct lh_yaml *parent, unsigned depth)
{
    for (struct lh_yaml **slot = &parent->child;; slot = &(*slot)->next) {
        yaml_event_t event;
        LH_TRY(next_event(r, &event));
        bool end = event.type == YAML_MAPPING_END_EVENT || event.type == YAML_SEQUENCE_END_EVENT;
        lh_err err = LH_OK;
        if (!end && parent->kind == LH_YAML_MAP) err = read_pair(r, &event, parent, depth, slot);
        if (!end && parent->kind == LH_YAML_LIST) err = read_node(r, &event, depth, slot);
        yaml_event_delete(&event);
        if (end || err) return err;
    }
}

// Stream start, at most one document, stream end.
static LH_MUST lh_err read_stream(struct reader *r, struct lh_yaml **out)
{
    for (bool end = false; !end;) {
        yaml_event_t event;
        LH_TRY(next_event(r, &event));
        lh_err err = LH_OK;
        switch (event.type) {
        case YAML_STREAM_END_EVENT: end = true; break;
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_START_EVENT:
        case YAML_DOCUMENT_END_EVENT: break;
        default:
            err = *out ? lh_fail(LH_ERR_CONFIG, "%s:%u: more than one document", r->name,
                                 line_of(&event))
                       : read_node(r, &event, 0, out);
        }
        yaml_event_delete(&event);
        LH_TRY(err);
    }
    return LH_OK;
}

lh_err lh_yaml_parse(const char *name, struct lh_span text, struct lh_yaml **out)
{
    *out = NULL;
    if (text.len > LH_YAML_BYTES_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "%s: %zu bytes, at most %d are read", name, text.len,
                       LH_YAML_BYTES_MAX);
    struct reader r = {.name = name};
    if (!yaml_parser_initialize(&r.parser))
        return lh_fail(LH_ERR_NO_MEMORY, "%s: no memory for YAML", name);
    const unsigned char nothing = 0; // libyaml asserts that the input is not NULL
    yaml_parser_set_input_string(&r.parser, text.len ? text.data : &nothing, text.len);
    struct lh_yaml *top = NULL;
    lh_err err = read_stream(&r, &top);
    yaml_parser_delete(&r.parser);
    if (!err && !top) {
        top = calloc(1, sizeof *top);
        if (!top) return lh_fail(LH_ERR_NO_MEMORY, "%s: no memory for YAML", name);
        top->kind = LH_YAML_MAP;
        top->line = 1;
    }
    if (!err && top->kind != LH_YAML_MAP)
        err = lh_fail(LH_ERR_CONFIG, "%s:%u: expected lines of `key: value`", name, top->line);
    if (err) {
        lh_yaml_free(top);
        return err;
    }
    *out = top;
    return LH_OK;
}
