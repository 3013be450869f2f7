/* What a jam or a ried in C includes. Its layouts are those of the crate jam-abi.
 *
 *   #include "jam.h"
 *
 *   JAM_PROPERTY(table, "bench.Table@1");
 *   JAM_IMPORT(bool, table_write, (table *, uint64_t, jam_bytes));
 *   JAM_SIGNATURE(table *, uint64_t, uint8_t);
 *
 *   int64_t JAM_ENTRY(jam_call *call) { ... }
 *
 * JAM_SIGNATURE names the property (a pointer to its type), the type of the arguments, and that of the
 * payload's elements, each void for none. The receiver checks their lengths before it calls the jam.
 * JAM_ENTRY is called once for each call: what it gets has no other call's arguments, in memory that
 * nothing else writes.
 */
#ifndef JAM_H
#define JAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes, bytes that the callee may change, text in UTF-8: as &[u8], &mut [u8] and &str. Where len is 0,
 * start may be null. Text that is not UTF-8 ends the jam, as a panic does. */
typedef struct { const uint8_t *start; size_t len; } jam_bytes;
typedef struct { uint8_t *start; size_t len; } jam_bytes_mut;
typedef struct { const uint8_t *start; size_t len; } jam_text;

typedef struct jam_context {
    uint32_t sender;
    uint32_t reserved;
    void (*log)(const struct jam_context *context, const uint8_t *text, size_t len);
    void *receiver;
} jam_context;

typedef struct jam_call {
    void *property;
    const void *args;
    size_t args_len;
    const void *payload;
    size_t payload_len;
    void *reply;
    size_t reply_capacity;
    size_t reply_len;
    const jam_context *context;
    size_t count;
    size_t done;
    size_t step;
} jam_call;

#define JAM_SECTION_(name) __attribute__((used, aligned(1), section(name)))

#ifdef JAM_LOCAL

/* The Local Function: what the declarations say is in the Injected Function. JAM_LOCAL is how the names
 * begin that the program knows. An import jumps to the address in its slot, which the receiver fills. */
#define JAM_PROPERTY(type, name) typedef struct type type

#ifdef __x86_64__
#define JAM_JUMP_(slot) "jmp *" slot "(%rip)\n"
#else
#define JAM_JUMP_(slot) \
    "adrp x16, " slot "\nadd x16, x16, :lo12:" slot "\nldar x16, [x16]\nbr x16\n"
#endif

#define JAM_IMPORT(result, name, parameters) \
    extern __attribute__((visibility("hidden"))) result name parameters __asm__("jam_call_" #name); \
    void *jam_slot_##name __asm__(JAM_LOCAL "_" #name); \
    __asm__(".pushsection .text\n.balign 16\n.globl jam_call_" #name "\njam_call_" #name ":\n" \
            JAM_JUMP_(JAM_LOCAL "_" #name) ".popsection\n")

#else

/* The type of a property of the receiver, by the name that its crate gives it. */
#define JAM_PROPERTY(type, name) \
    typedef struct type type; \
    static const char jam_property_##type[] JAM_SECTION_(".jam.c") = "property\t" #type "\t" #name "\n"

/* A function of the receiver: result, name, parameters in parentheses. */
#define JAM_IMPORT(result, name, parameters) \
    extern result name parameters; \
    static const char jam_import_##name[] JAM_SECTION_(".jam.c") = \
        "import\t" #name "\t" #result "\t" #parameters "\n"

#endif /* JAM_LOCAL */

#ifdef JAM_RIED

/* A ried in C is a folder NAME with NAME.c, and other files in C beside it. A function of it, for jams:
 * result, name, types of the parameters in parentheses, beside its definition:
 *
 *   RIED_EXPORT(uint64_t, twice, (uint64_t));
 *   uint64_t twice(uint64_t number) { return 2 * number; }
 */
#define RIED_EXPORT(result, name, parameters) \
    result name parameters; \
    static const char ried_export_##name[] JAM_SECTION_(".jam.c") = \
        "export\t" #name "\t" #result "\t" #parameters "\n"

#else

/* What the jam takes: property, arguments, elements of the payload. */
#ifdef JAM_LOCAL
uint32_t __jam_entry(jam_call *call) __asm__(JAM_LOCAL);
#define JAM_SIGNATURE(property, args, element) _Static_assert(1, "")
#else
#define JAM_SIGNATURE(property, args, element) \
    static const uint32_t jam_sizes[2] JAM_SECTION_(".jam.c.sizes") = {sizeof(args), sizeof(element)}; \
    static const char jam_signature[] JAM_SECTION_(".jam.c") = \
        "entry\t" #property "\t" #args "\t" #element "\n"
#endif

/* The function; it returns the result. */
#define JAM_ENTRY jam_entry_

/* Not part of the loop below: what the compiler takes out of that has no line of the source. */
__attribute__((noinline)) static int64_t jam_entry_(jam_call *call);

uint32_t __jam_entry(jam_call *call)
{
    /* Others may write arguments of up to so many bytes: the function gets a copy. */
    enum { shared = 128 };
    if (call->reply_capacity < sizeof(int64_t)) return 3;
    /* A run: the function is called as often as there are arguments. */
    for (;;) {
        _Alignas(16) unsigned char args[shared];
        jam_call one = *call;
        if (one.args_len <= shared) {
            const volatile unsigned char *from = one.args;
            for (size_t at = 0; at < one.args_len; at++) args[at] = from[at];
            one.args = args;
        }
        *(volatile int64_t *)one.reply = jam_entry_(&one);
        *(volatile size_t *)&call->done = call->done + 1;
        if (call->done >= call->count) break;
        call->args = (const char *)call->args + call->step;
        call->reply = (char *)call->reply + call->step;
    }
    call->reply_len = sizeof(int64_t);
    return 0;
}

/* Writes a line to the receiver's log. */
static inline void jam_log(const jam_call *call, const char *text, size_t len)
{
    call->context->log(call->context, (const uint8_t *)text, len);
}

#endif /* JAM_RIED */

#endif
