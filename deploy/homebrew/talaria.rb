# Talaria for Homebrew, from a checkout: `make dist`, then `brew install --formula deploy/homebrew/talaria.rb`.
class Talaria < Formula
  desc "Personal AI agent for the terminal, chats, the browser and scripts"
  sdist = Dir[File.expand_path("../../dist/talaria_agent-*.tar.gz", __dir__)].max_by { |file| File.mtime(file) }
  odie "Run `make dist` in the checkout first." if sdist.nil?
  url "file://#{sdist}"
  version File.basename(sdist)[/talaria_agent-(.+)\.tar\.gz/, 1]
  license "MIT"

  depends_on "python@3.13"

  def install
    system "python3.13", "-m", "venv", libexec
    pip = [libexec/"bin/python", "-m", "pip", "--no-input", "--disable-pip-version-check", "install", "--no-deps"]
    system(*pip, "--require-hashes", "-r", "requirements/base.lock", "-r", "requirements/build.lock")
    system(*pip, "--no-build-isolation", ".")
    bin.install_symlink libexec/"bin/talaria"
    generate_completions_from_executable(bin/"talaria", "completion", shells: [:bash, :zsh, :fish])
  end

  service do
    run [opt_bin/"talaria", "gateway", "run"]
    keep_alive crashed: true
    log_path var/"log/talaria.log"
    error_log_path var/"log/talaria.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/talaria --version")
    ENV["TALARIA_HOME"] = testpath
    assert_equal "[]", shell_output("#{bin}/talaria sessions list --json").strip
  end
end
