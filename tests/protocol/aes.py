"""AES-128 as FIPS 197 writes it down, plain and slow, with the face of MicroPython's `cryptolib`.

An oracle for what a runtime's own AES does; and a stand-in on the runtime that has none, so that
the tests of the device link run there, too (`firmware_tests/wasm.py`).
"""


def _double(value):
    """Return a value times x in AES's field."""
    return (value << 1 ^ 0x11B if value & 0x80 else value << 1) & 0xFF


def _make_box():
    """Return the substitution: the inverse in the field, and then bits turned and added."""
    powers = [1] * 256
    for i in range(1, 256):
        powers[i] = powers[i - 1] ^ _double(powers[i - 1])  # 3 generates all
    box = bytearray(256)
    for value in range(256):
        inverse = powers[255 - powers.index(value) % 255] if value else 0
        mixed = 0
        for turn in range(5):
            mixed ^= inverse << turn | inverse >> (8 - turn)
        box[value] = mixed & 255 ^ 0x63
    return box


_BOX = _make_box()


def _expand(key):
    """Return the eleven round keys in one row."""
    row = bytearray(key)
    constant = 1
    while len(row) < 176:
        word = row[-4:]
        if len(row) % 16 == 0:
            word = bytearray([_BOX[word[i]] for i in (1, 2, 3, 0)])
            word[0] ^= constant
            constant = _double(constant)
        row += bytearray([row[len(row) - 16 + i] ^ word[i] for i in range(4)])
    return row


def _encrypt_block(row, block):
    state = [block[i] ^ row[i] for i in range(16)]
    for turn in range(1, 11):
        state = [_BOX[state[(i + 4 * (i & 3)) & 15]] for i in range(16)]  # with rows shifted
        if turn < 10:
            mixed = []
            for column in range(0, 16, 4):
                a = state[column : column + 4]
                every = a[0] ^ a[1] ^ a[2] ^ a[3]
                mixed += [a[i] ^ every ^ _double(a[i] ^ a[(i + 1) & 3]) for i in range(4)]
            state = mixed
        state = [state[i] ^ row[16 * turn + i] for i in range(16)]
    return bytes(state)


class aes:
    def __init__(self, key, mode, start=None):
        if mode not in (1, 2):
            raise ValueError("mode")
        self.row = _expand(key)
        self.mode = mode
        self.last = start

    def encrypt(self, text, out=None):
        done = bytearray()
        for at in range(0, len(text), 16):
            block = text[at : at + 16]
            if self.mode == 2:
                block = bytes([block[i] ^ self.last[i] for i in range(16)])
            self.last = _encrypt_block(self.row, block)
            done += self.last
        if out is not None:
            out[:] = done
        return bytes(done)
