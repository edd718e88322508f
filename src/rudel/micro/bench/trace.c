/* A plugin of QEMU that counts how often each block of code runs in a function, and between the marks in it.
 *
 * A block is code that QEMU translates at once: it has one entry, and ends with a branch at the latest. Arguments: `begin`, the
 * function's address; `mark`, that of a function that ends a section and whose own code is not counted; `out`, the file to
 * write. For each section of each call it holds a line for every block that ran: its address, its instructions, how often it
 * ran, how often another block than the next in memory ran after it, and how often that began with a 32-bit instruction that
 * is not aligned. Then follow the extra bus cycles of unaligned loads, after `end` where the function returns, or `mark`.
 *
 * Debian has no header for plugins, so what this one uses of QEMU's interface is declared here. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { NO_REGISTERS = 0, READS_AND_WRITES = 3 }; /* QEMU 7.2 takes READS for writes, so load() looks itself */

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *instruction);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *instruction);
unsigned qemu_plugin_mem_size_shift(uint32_t access);
_Bool qemu_plugin_mem_is_store(uint32_t access);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t plugin, void (*call)(uint64_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block, void (*call)(unsigned, void *), int flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *instruction, void (*call)(unsigned, uint32_t, uint64_t, void *),
                                      int flags, int accesses, void *data);
void qemu_plugin_register_atexit_cb(uint64_t plugin, void (*call)(uint64_t, void *), void *data);

int qemu_plugin_version = TRACE_INTERFACE;

typedef struct Block {
    uint64_t start, end, instructions, runs, taken, unaligned;
    int wide; /* starts with a 32-bit instruction that is not aligned */
    struct Block *next;
} Block;

static Block *blocks, *previous;
static uint64_t begin, mark, extra;
static uint64_t end;    /* where the function returns to, while it runs */
static uint64_t resume; /* where the mark returns to, while it runs */
static FILE *out;

static void section(const char *what) {
    for (Block *block = blocks; block; block = block->next) {
        if (!block->runs) continue;
        fprintf(out, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", block->start, block->instructions,
                block->runs, block->taken, block->unaligned);
        block->runs = block->taken = block->unaligned = 0;
    }
    fprintf(out, "%s %" PRIu64 "\n", what, extra);
    extra = 0;
}

static void enter(unsigned cpu, void *data) {
    Block *const block = data, *const before = previous;
    (void)cpu;
    if (!end) {
        previous = block;
        if (block->start != begin || !before) return;
        end = before->end;
        block->runs++;
        return;
    }
    if (resume) {
        if (block->start != resume && block->start != end) return;
    } else if (block->start == mark) {
        section("mark");
        resume = before->end;
        return;
    } else if (block->start != before->end) {
        before->taken++;
        before->unaligned += (uint64_t)block->wide;
    }
    resume = 0;
    previous = block;
    if (block->start == end) {
        section("end");
        end = 0;
        return;
    }
    block->runs++;
}

static void load(unsigned cpu, uint32_t access, uint64_t address, void *data) {
    const unsigned shift = qemu_plugin_mem_size_shift(access);
    (void)cpu, (void)data;
    if (!end || resume || qemu_plugin_mem_is_store(access)) return;
    if (shift == 1) extra += address & 1;
    if (shift == 2) extra += address & 1 ? 2 : (address & 2) / 2;
}

static void translated(uint64_t plugin, struct qemu_plugin_tb *code) {
    const size_t count = qemu_plugin_tb_n_insns(code);
    const struct qemu_plugin_insn *const first = qemu_plugin_tb_get_insn(code, 0);
    const struct qemu_plugin_insn *const last = qemu_plugin_tb_get_insn(code, count - 1);
    Block *const block = calloc(1, sizeof *block);
    (void)plugin;
    if (!block) abort();
    block->start = qemu_plugin_insn_vaddr(first);
    block->end = qemu_plugin_insn_vaddr(last) + qemu_plugin_insn_size(last);
    block->instructions = count;
    block->wide = qemu_plugin_insn_size(first) == 4 && block->start % 4;
    block->next = blocks;
    blocks = block;
    qemu_plugin_register_vcpu_tb_exec_cb(code, enter, NO_REGISTERS, block);
    for (size_t i = 0; i < count; i++) {
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(code, i), load, NO_REGISTERS, READS_AND_WRITES, NULL);
    }
}

static void finished(uint64_t plugin, void *data) {
    (void)plugin, (void)data;
    fclose(out);
}

int qemu_plugin_install(uint64_t plugin, const void *about, int count, char **arguments) {
    (void)about;
    for (int i = 0; i < count; i++) {
        char *const value = strchr(arguments[i], '=');
        if (!value) return -1;
        if (!strncmp(arguments[i], "begin=", 6)) begin = strtoull(value + 1, NULL, 0);
        if (!strncmp(arguments[i], "mark=", 5)) mark = strtoull(value + 1, NULL, 0);
        if (!strncmp(arguments[i], "out=", 4)) out = fopen(value + 1, "w");
    }
    if (!begin || !out) return -1;
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated);
    qemu_plugin_register_atexit_cb(plugin, finished, NULL);
    return 0;
}
