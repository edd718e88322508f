"""What the tests of the compiler share: models made field by field, oracles, a C compiler."""
