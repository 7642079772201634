# book.mk: the READMEs and notes as a web site, with figures that compute (common/products/book).
#
#   make book         build/book/index.html; installs clang with its linker for WebAssembly, and
#                     MkDocs into build/book.venv (SERVE=1: shows it at http://127.0.0.1:8000;
#                     SITE=https://.../: where it will be, which a shared link's picture needs)
#   make book-test    the site in headless Chromium; make test runs it where it can
#                     (BOOK=build/book: the site of `make book`, where nothing has changed since)
#   make book-pictures   draws the pictures that stand for the figures in the repository's pages
BOOK_WASM := lesson1 lesson2 lesson3 monoid tiles gradient module
BOOK_PYTHON := $(BUILD)/book.venv/bin/python
WASM_FLAGS := --target=wasm32 -O2 -std=gnu11 -nostdlib -ffreestanding -ffp-contract=off \
              -Werror=implicit-function-declaration \
              -Icommon/products/book/wasm/include -Icommon/core -I.
WASM_O := $(BOOK_WASM:%=$(BUILD)/obj/wasm/%.o)

.PHONY: book book-test book-pictures
$(BUILD)/obj/wasm/%.o: common/products/book/wasm/%.c $(BUILD)/config
	$(call says,wasm )
	$(Q)clang $(WASM_FLAGS) -MMD -MP -c $< -o $@

$(BUILD)/obj/wasm/lesson%.o: common/products/book/wasm/lesson.c $(BUILD)/config
	$(call says,wasm ,stage $*)
	$(Q)clang $(WASM_FLAGS) -DSTAGE=$* -DLESSON='"$(filter 0$*_%,$(STAGES))/variants.c"' \
	    -MMD -MP -c $< -o $@

$(BUILD)/figures.wasm: $(WASM_O)
	$(call says,link ,$@)
	$(Q)wasm-ld --no-entry --allow-undefined-file=common/products/book/wasm/imports.txt \
	    -z stack-size=65536 --gc-sections --strip-all $^ -o $@

$(BUILD)/book.venv/done: common/core/make/python.lock
	@echo "installing MkDocs into $(@D)"
	$(Q)python3 -m venv --clear $(@D) && sed '/^# tests/,$$d' $< >$(@D)/book.lock
	$(Q)$(@D)/bin/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes \
	    -r $(@D)/book.lock
	@touch $@

book: $(BUILD)/figures.wasm $(BUILD)/book.venv/done
	$(Q)SITE='$(SITE)' NO_MKDOCS_2_WARNING=1 $(BOOK_PYTHON) common/products/book/build.py $(BUILD)
	@echo "open $(BUILD)/book/index.html, or make book SERVE=1"
	$(if $(SERVE),@echo "http://127.0.0.1:8000 (Ctrl-C ends it)"; \
	    $(BOOK_PYTHON) -m http.server 8000 --bind 127.0.0.1 --directory $(BUILD)/book)

book-test book-pictures: build $(if $(BOOK),,book)
	$(Q)BUILD=$(BUILD) BOOK=$(or $(BOOK),$(BUILD)/book) $(if $(filter %-pictures,$@),PICTURES=1) \
	    $(PYTHON) -m pytest -q tests/test_book.py $(if $(filter %-pictures,$@),-k pictures)
