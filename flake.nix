{
  description = "Talaria, a personal AI agent for the terminal, chats, the browser and scripts";

  inputs.nixpkgs.url = "nixpkgs";

  outputs =
    { self, nixpkgs }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
        "aarch64-darwin"
      ];
      forSystems = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
      version = builtins.head (
        builtins.match ".*__version__ = \"([^\"]+)\".*" (builtins.readFile ./src/talaria/__init__.py)
      );
    in
    {
      packages = forSystems (pkgs: {
        default = pkgs.python313Packages.buildPythonApplication {
          pname = "talaria-agent";
          inherit version;
          src = self;
          pyproject = true;
          build-system = [ pkgs.python313Packages.hatchling ];
          # nixpkgs may be a release behind; the test suite runs with the pinned versions of requirements/.
          pythonRelaxDeps = true;
          dependencies = with pkgs.python313Packages; [
            apsw
            chardetng-py
            google-re2
            httptools
            jsonschema-rs
            msgspec
            prompt-toolkit
            pygments
            pypdfium2
            pyyaml
            segno
            selectolax
            tomlkit
            tree-sitter
            tree-sitter-bash
            uvicorn
          ];
          optional-dependencies.postgres = [ pkgs.python313Packages.psycopg ];
          nativeBuildInputs = [ pkgs.installShellFiles ];
          doCheck = false; # the suite starts servers and browsers; `make check` runs it
          pythonImportsCheck = [ "talaria" ];
          postInstall = ''
            installShellCompletion --cmd talaria \
              --bash <($out/bin/talaria completion bash) \
              --zsh <($out/bin/talaria completion zsh) \
              --fish <($out/bin/talaria completion fish)
          '';
          meta = {
            description = "A personal AI agent in your terminal, your chats and your browser";
            license = pkgs.lib.licenses.mit;
            mainProgram = "talaria";
            platforms = systems;
          };
        };
      });

      devShells = forSystems (pkgs: {
        default = pkgs.mkShell {
          packages = [
            pkgs.python313
            pkgs.gnumake
          ];
        };
      });
    };
}
