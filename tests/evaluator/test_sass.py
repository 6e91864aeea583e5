"""SASS is counted by what it keeps busy, and hashed by what it does."""

from __future__ import annotations

from evaluator.sass import classify, instructions, mix, sass_sha

TEXT = """
.text.copy:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   S2R R0, SR_TID.X ;
        /*0020*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0030*/              @P1  LDG.E R8, desc[UR4][R2.64+0x10] ;
        /*0040*/                   FFMA R4, R4, R5, R6 ;
        /*0050*/                   MUFU.EX2 R4, R4 ;
        /*0060*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24 ;
        /*0070*/                   HMMA.16816.F32 R24, R4, R8, R24 ;
        /*0080*/                   STL [R1], R4 ;
        /*0090*/                   STG.E.64 desc[UR4][R2.64], R4 ;
        /*00a0*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*00b0*/                   EXIT ;
.L_x_0:
        /*00c0*/                   BRA `(.L_x_0);
        /*00d0*/                   NOP;
"""


def test_each_instruction_has_one_class_and_padding_none():
    assert mix(TEXT) == {
        "ldg32": 1,
        "ldg128": 1,
        "stg64": 1,
        "barrier": 1,
        "control": 2,
        "fp32": 1,
        "mma": 1,
        "mufu": 1,
        "stl": 1,
        "wgmma": 1,
        "other": 2,
    }
    assert len(instructions(TEXT)) == 13


def test_predicates_and_modifiers_are_no_part_of_the_opcode():
    assert instructions(TEXT)[2] == ("LDG", ".E.128", "R4, desc[UR4][R2.64]")
    assert classify("LDG", ".E.U8") == "ldg32"
    assert classify("UNHEARD", "") == "other"


def test_addresses_and_labels_do_not_change_the_hash_and_registers_do():
    moved = TEXT.replace("/*0", "/*1").replace(".L_x_0", ".L_x_7")
    assert sass_sha(moved) == sass_sha(TEXT)
    assert sass_sha(TEXT.replace("FFMA R4", "FFMA R5")) != sass_sha(TEXT)


def test_a_mask_and_its_opposite_are_other_code():
    line = "        /*0020*/              @{}P0 LDG.E R4, desc[UR4][R2.64] ;"
    assert sass_sha(line.format("!")) != sass_sha(line.format(""))


def test_steps_of_other_sizes_are_other_code_and_addresses_of_branches_are_not():
    step = "        /*0020*/                   IADD3 R4, R4, {}, RZ ;"
    assert sass_sha(step.format("0x1000")) != sass_sha(step.format("0x2000"))
    branch = "        /*0020*/                   BRA {} ;"
    assert sass_sha(branch.format("0x150")) == sass_sha(branch.format("0x260"))


def test_loops_that_begin_elsewhere_are_other_code():
    lines = [
        "        /*0020*/   FADD R4, R4, R5 ;",
        "        /*0030*/   FMUL R4, R4, R5 ;",
        "   /*0040*/   BRA `(.L_x_3);",
    ]
    whole, half = "\n".join([".L_x_3:", *lines]), "\n".join([lines[0], ".L_x_3:", *lines[1:]])
    assert sass_sha(whole) != sass_sha(half)
    assert sass_sha(whole.replace(".L_x_3", ".L_x_8")) == sass_sha(whole)
