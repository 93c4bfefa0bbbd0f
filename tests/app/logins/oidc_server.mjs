// Authorization server for the sign-in tests: oidc-provider with its own sign-in pages, on loopback.
// Arguments: the package's entry file, the seconds that an access token lives.
import http from 'node:http';
import { pathToFileURL } from 'node:url';

const [entry, seconds] = process.argv.slice(2);
const { default: Provider } = await import(pathToFileURL(entry).href);

const server = http.createServer();
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;

const native = {
  application_type: 'native',
  response_types: ['code'],
  grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'],
  redirect_uris: ['http://localhost/auth/callback', 'http://localhost/'],
};
const provider = new Provider(issuer, {
  clients: [
    { ...native, client_id: 'public-client', token_endpoint_auth_method: 'none' },
    { ...native, client_id: 'own-client', client_secret: 'own-client-secret', token_endpoint_auth_method: 'client_secret_post' },
  ],
  scopes: ['openid', 'email', 'profile', 'offline_access', 'read:user', 'tools'],
  claims: { openid: ['sub'], email: ['email'], profile: ['name', 'https://api.openai.com/auth'] },
  conformIdTokenClaims: false,
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({
      sub: id,
      name: id,
      email: `${id}@example.org`,
      'https://api.openai.com/auth': { chatgpt_account_id: `account-of-${id}`, chatgpt_plan_type: 'plus' },
    }),
  }),
  features: {
    devInteractions: { enabled: true },
    deviceFlow: { enabled: true },
    revocation: { enabled: true },
    registration: { enabled: true },
    introspection: { enabled: true, allowedPolicy: () => true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: () => ({ scope: 'tools', accessTokenTTL: Number(seconds), accessTokenFormat: 'opaque' }),
      useGrantedResource: () => true,
    },
  },
  pkce: { required: () => true },
  issueRefreshToken: () => true,
  rotateRefreshToken: true,
  ttl: { AccessToken: Number(seconds), IdToken: 3600, RefreshToken: 3600, DeviceCode: 600, Interaction: 600, Session: 600, Grant: 3600 },
  cookies: { keys: ['only for tests'] },
  jwks: undefined,
});

const grants = {};
provider.on('grant.success', (ctx) => {
  const kind = ctx.oidc.params.grant_type;
  grants[kind] = (grants[kind] ?? 0) + 1;
});
provider.use(async (ctx, next) => {
  if (ctx.path === '/grants') {
    ctx.body = grants;
  } else {
    await next();
  }
});
server.on('request', provider.callback());
process.stdout.write(`${issuer}\n`);
process.stdin.resume();
process.stdin.on('end', () => process.exit(0)); // ends with the test run
